"""Nothing is wrong: first tokens take what their new tokens cost."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.lost_reuse import hits_cost
from ttftdoctor.units import count, seconds, share

#: So much may be lost per request without anybody being the worse for it.
UNNOTICED_S = 0.05


def judge(e: Evidence) -> Judgement:
    """The complement: strong where little is lost and much is explained."""
    if e.mean is None:
        return Judgement(judged=False, needs=("ttft_us",))
    part, noticed = _part(e, _lost_s(e)), _part(e, _lost_s(e) - UNNOTICED_S)
    text = tr(
        "{plain} of TTFT is a constant and the prefill of new tokens; p50 {p50}, p95 {p95}",
        plain=share(1 - part), p50=seconds(e.population.ttft_p50_s),
        p95=seconds(e.population.ttft_p95_s),
    )  # fmt: skip
    evidence = [say(text, lost_share=part)]
    needs: tuple[str, ...] = ()
    works = hits_cost(e)
    evidence += works
    if not works and e.reuse is not None and e.reuse.hit_share >= 0.5:
        evidence.append(
            say(tr("{part} of the turns that could reuse a prefix did",
                   part=share(e.reuse.hit_share)),
                hit_share=e.reuse.hit_share)
        )  # fmt: skip
    if e.unknown_ancestry >= 0.3 and e.longest_prompts > 1500:
        text = tr(
            "prompts reach {n} tokens, and of {part} of all prompt tokens nothing tells whether "
            "they repeat earlier ones: session ids would decide",
            n=count(e.longest_prompts), part=share(e.unknown_ancestry),
        )  # fmt: skip
        evidence.append(say(text, unknown_share=e.unknown_ancestry))
        needs = ("session_id",)
    return Judgement(
        strength=max(0.0, 0.95 - noticed), seconds=0.0, evidence=tuple(evidence), needs=needs
    )


def _lost_s(e: Evidence) -> float:
    """Seconds of the mean TTFT that are not known to be a constant or prefill of new tokens."""
    waiting = e.wait.mean if e.wait else 0.0
    return e.prefill_repeated_s + waiting + max(e.unexplained_s, 0.0) + e.untold_s


def _part(e: Evidence, lost_s: float) -> float:
    """Seconds as a share of the mean TTFT, from none of it to all."""
    return min(max(e.share(lost_s) or 0.0, 0.0), 1.0)


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    p50, p95 = seconds(e.population.ttft_p50_s), seconds(e.population.ttft_p95_s)
    plain = share(1 - _part(e, _lost_s(e)))
    if j.needs:
        return tr(
            "Nothing seems wrong: TTFT is {p50} at the median and {p95} at the 95th percentile, "
            "and {plain} of TTFT is a constant and the prefill of new tokens; session ids would "
            "decide whether long prompts are computed again",
            p50=p50, p95=p95, plain=plain,
        )  # fmt: skip
    return tr(
        "Nothing is wrong: TTFT is {p50} at the median and {p95} at the 95th percentile, and "
        "{plain} of TTFT is a constant and the prefill of new tokens",
        p50=p50, p95=p95, plain=plain,
    )  # fmt: skip


CAUSE = Cause(
    id="healthy",
    family="none",
    order=200,
    judge=judge,
    headline=headline,
    next_steps=(mark("Keep this log as a baseline."),),
    experiment=Experiment(
        text=mark(
            "See what the slowest requests differ in: where nothing is wrong, in no more than "
            "their new tokens."
        ),
        command="ttftdoctor contrast {log} --select 'ttft > p95'",
    ),
)

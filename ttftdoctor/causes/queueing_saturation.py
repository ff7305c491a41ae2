"""More prefill work arrives than is served: requests wait before their own prefill begins."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, Step, elsewhere, lacking, say, unlogged
from ttftdoctor.contention import at_work
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence, Wait
from ttftdoctor.language import mark, tr
from ttftdoctor.units import digits, seconds, share

#: Waiting this many times the prefill ahead is not waiting for prefill alone.
MORE_FROM = 5.0
#: The wait is less likely the root by this part where all of it may be behind work done again.
UNSURE = 0.3


def judge(e: Evidence) -> Judgement:
    """Blame the wait; call the part behind repeated prefill amplified."""
    w = e.wait
    if w is None:
        return lacking(
            "start", "queue_us", text=tr("the log has neither arrival times nor a queue time")
        )
    evidence = [
        say(
            tr("requests wait {wait} on average before their prefill ({part} of TTFT)",
               wait=seconds(w.mean), part=share(e.share(w.mean))),
            wait_mean_s=w.mean, wait_share=e.share(w.mean),
        )
    ]  # fmt: skip
    if w.mean > 0:
        evidence.append(
            say(
                tr(
                    "of that {repeated} behind prefill of repeated history, {new} behind prefill "
                    "of new tokens, {other} other",
                    repeated=seconds(w.behind_repeated), new=seconds(w.behind_new),
                    other=seconds(w.other),
                ),
                behind_repeated_s=w.behind_repeated, behind_new_s=w.behind_new, other_s=w.other,
            )
        )  # fmt: skip
    if w.idle_level_s is not None and w.busy_level_s is not None:
        evidence.append(
            say(
                tr(
                    "TTFT is {idle} for requests that find the server free and {busy} for those "
                    "that find others waiting",
                    idle=seconds(w.idle_level_s), busy=seconds(w.busy_level_s),
                ),
                alone_p50_s=w.idle_level_s, busy_p50_s=w.busy_level_s,
            )
        )  # fmt: skip
    if w.logged_mean is not None:
        evidence.append(
            say(tr("the engine itself logs a queue time of {wait} on average",
                   wait=seconds(w.logged_mean)),
                queue_logged_s=w.logged_mean)
        )  # fmt: skip
    evidence += elsewhere(e)
    if w.per_backlog is not None and w.per_backlog > MORE_FROM and w.other > 0.5 * w.mean:
        text = tr(
            "the wait is {n} times the prefill that was ahead: requests wait for more than prefill",
            n=digits(w.per_backlog),
        )
        evidence.append(say(text, per_backlog=w.per_backlog))
    follows = max(w.follows_backlog or 0.0, w.follows_running or 0.0)
    strength = 0.2 + 0.7 * min(max(follows, 0.0) / 0.5, 1.0)
    if w.logged_mean and w.logged_mean >= 0.3 * max(w.mean, 1e-9):
        strength = max(strength, 0.9)
    # What decoding is not believed to hold up is a wait all the same, but for steps shared with it.
    decoding = w.decoding_mean if at_work(e) else w.steps_mean
    amplified = w.behind_repeated if e.prefill_repeated_s > 0 else 0.0
    needs: tuple[str, ...] = ()
    if amplified > 0 and e.reuse is None:
        # No cause can be blamed for work of which it is unknown whether it was done again.
        part, amplified, needs = amplified / w.mean, 0.0, ("cached_tokens",)
        strength *= 1.0 - UNSURE * part
        text = tr(
            "whether what they wait behind was computed before and could have been cached, the "
            "log does not tell: cached tokens would decide"
        )
        evidence.append(say(text, behind_repeated_share=part))
    root = w.mean - decoding - amplified - w.behind_change
    return Judgement(
        strength=strength, seconds=max(root, 0.0), interval=_part(w, root),
        evidence=tuple(evidence), amplified=amplified, needs=needs,
        against=_against(e, w, root),
        growth_seconds=sum(e.growth_accounts.get(a, 0.0) for a in
                           ("queue_behind_new", "queue_other")) if e.growth_accounts else None,
    )  # fmt: skip


def _against(e: Evidence, w: Wait, root: float) -> str:
    if w.mean <= 0:
        return tr("no wait is found: TTFT does not follow the work ahead")
    if at_work(e) and root < 0.5 * w.mean:
        return tr(
            "of a wait of {wait}, {decoding} is for slots and steps that decoding holds",
            wait=seconds(w.mean), decoding=seconds(w.decoding_mean),
        )  # fmt: skip
    return ""


def _part(w: Wait, root: float) -> tuple[float, float] | None:
    """The interval of the whole wait, for the part of it that is a root."""
    if w.interval is None or w.mean <= 0 or root <= 0:
        return None
    low, high = w.interval
    return max(low, 0.0) * root / w.mean, high * root / w.mean


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    w = e.wait
    wait = w.mean if w else None
    return tr(
        "Requests wait for others: {wait} of the mean TTFT of {mean} ({part}) is queueing, not "
        "their own prefill",
        wait=seconds(wait), mean=seconds(e.mean), part=share(e.share(wait)),
    )  # fmt: skip


CAUSE = Cause(
    id="queueing_saturation",
    family="load",
    order=50,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Look at the hours with the most requests in flight; add capacity there or admit fewer."
        ),
        Step(
            mark(
                "Look before the engine: a tokenizer or front end that does one request at a time, "
                "a gateway, a limit on connections."
            ),
            where=lambda e: bool(elsewhere(e)),
        ),
        unlogged(mark("Log the engine's queue time beside TTFT."), "queue_us"),
    ),
    remedies=("double_capacity", "chunked_prefill"),
    experiment=Experiment(
        text=mark(
            "See what the slowest requests differ in: if waiting is the cause, in the requests in "
            "flight and the work ahead, and not in their own length."
        ),
        command="ttftdoctor contrast {log} --select 'ttft > p95'",
    ),
)

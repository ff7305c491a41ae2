"""Batch slots or steps are taken by decoding, so that prefill has to wait for them."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.contention import CROWDED, FEW_SLOTS, crowded, strength
from ttftdoctor.diagnosis import Experiment, Statement
from ttftdoctor.evidence import Evidence, Wait
from ttftdoctor.language import mark, tr
from ttftdoctor.units import count, milliseconds, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame waits that end when others end, and steps that are slow with many in them."""
    w = e.wait
    if w is None or not e.has("e2e_us"):
        return lacking(
            "e2e_us", "start",
            text=tr("without the end of each request nobody knows who was decoding"),
        )  # fmt: skip
    part = w.decoding_mean
    evidence = [
        say(
            tr(
                "{time} of the mean TTFT ({part}) goes to slots held by decoding and to steps that "
                "decode for others ({steps})",
                time=seconds(part), part=share(e.share(part)), steps=seconds(w.steps_mean),
            ),
            decoding_s=part, steps_s=w.steps_mean,
        )
    ]  # fmt: skip
    if part > 0:
        evidence += _slots(w) + _steps(w)
    slope = e.lines.decode.slope_per_running_ms if e.lines.decode else None
    if slope is not None:
        evidence.append(
            say(tr("decode slows by {slope} ms a token for each request running",
                   slope=format(slope, ".2g")),
                slope_per_running_ms=slope)
        )  # fmt: skip
    if w.slots_held and w.logged_mean is None and w.slots_most <= FEW_SLOTS:
        text = tr(
            "a client that sends only so many requests at a time looks the same: log the engine's "
            "queue time to tell them apart"
        )
        evidence.append(say(text))
    return Judgement(
        strength=strength(w) if part > 0 else 0.1, seconds=part, evidence=tuple(evidence),
        against=_against(w),
        needs=("queue_us",) if w.slots_held and w.logged_mean is None else (),
    )  # fmt: skip


def _against(w: Wait) -> str:
    if w.decoding_mean <= 0:
        return tr("TTFT does not follow the number of requests decoding")
    part = crowded(w)
    if part is not None and part < CROWDED and not w.slots_held:
        return tr("steps hardly slow down with the number of requests decoding")
    return tr("first tokens do not come with the ends of other requests")


def _slots(w: Wait) -> list[Statement]:
    if not w.slots_held or w.after_end is None:
        return []
    text = tr(
        "first tokens come right after the end of another request: {place} of the way to the next, "
        "where chance gives 50 % ({n} requests)",
        place=share(w.after_end), n=count(w.ended_n),
    )  # fmt: skip
    found = [say(text, after_end=w.after_end, n=w.ended_n)]
    if w.slots_capped >= 0.5:
        text = tr("never more than {n} decode at once at a server", n=count(w.slots_most))
        found.append(say(text, slots_most=w.slots_most, capped_share=w.slots_capped))
    return found


def _steps(w: Wait) -> list[Statement]:
    if w.steps is None or w.step_s is None or w.steps_mean <= 0:
        return []
    step, n = milliseconds(w.step_s * 1e3), f"{w.steps:.2g}"
    if w.step_alone_s is None:
        text = tr(
            "a step takes {step} while others decode in it; a first token takes {n} of them and "
            "more for a long prompt",
            step=step, n=n,
        )  # fmt: skip
    else:
        text = tr(
            "a step takes {step} while others decode in it, {alone} with hardly any; a first token "
            "takes {n} of them and more for a long prompt",
            step=step, alone=milliseconds(w.step_alone_s * 1e3), n=n,
        )  # fmt: skip
    return [say(text, step_s=w.step_s, step_alone_s=w.step_alone_s, steps=w.steps)]


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return tr(
        "First tokens wait for slots and steps that decoding holds: {time} of the mean TTFT of "
        "{mean} ({part})",
        time=seconds(j.seconds), mean=seconds(e.mean), part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="decode_contention",
    family="load",
    order=60,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Raise the number of sequences if KV memory allows (vLLM: --max-num-seqs), or split "
            "prefill and decode into separate pools."
        ),
    ),
    remedies=("more_seqs", "disaggregated_prefill", "double_capacity"),
    experiment=Experiment(
        text=mark(
            "Serve prefill apart from decoding, or cap the answers, for an hour and log it as "
            "after.jsonl."
        ),
        command="ttftdoctor compare {log} after.jsonl --remedy disaggregated_prefill",
    ),
)

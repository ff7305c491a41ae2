"""The number is not a time to first token."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment, Statement
from ttftdoctor.evidence import Evidence
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Done first: if it holds, no other cause can be judged from this number."""
    a = e.artifact
    if a.n == 0:
        return lacking("ttft_us", text="the log has no first-token times")
    found: list[tuple[float, Statement]] = []
    on = f" on {a.scope}" if a.scope else ""
    if a.equal_share >= 0.6:
        text = (
            f"in {share(a.equal_share)} of the requests{on} the first token comes with the last "
            f"(TTFT {seconds(a.ttft_logged_p50_s)}, whole request {seconds(a.e2e_p50_s)}): "
            "not streamed, or buffered on the way"
        )
        found.append((0.6 + 0.38 * a.equal_share, say(text, equal_share=a.equal_share)))
    if a.not_streamed_share >= 0.8:
        text = f"{share(a.not_streamed_share)} of the requests were not streamed"
        found.append((0.9, say(text, not_streamed_share=a.not_streamed_share)))
    if a.after_share >= 0.3:
        late = f", {a.after_factor:,.0f} times as late" if a.after_factor else ""
        text = (
            f"in {share(a.after_share)} of the requests the first token would come after the end"
            f"{late}: the units differ"
        )
        found.append((0.9, say(text, after_share=a.after_share, factor=a.after_factor)))
    if a.unit_mixed:
        found.append((0.85, say(a.unit_mixed, factor=1000)))
    if a.constant_share >= 0.9:
        text = (
            f"TTFT is {seconds(a.constant_s)} in {share(a.constant_share)} of the requests, "
            "whatever their length: a placeholder or a timer, not a measurement"
        )
        found.append((0.85, say(text, constant_s=a.constant_s, constant_share=a.constant_share)))
    if a.thinking_share >= 0.4:
        text = (
            f"TTFT grows with the {a.thinking_basis} by {a.thinking_ms_per_token:.3g} ms each, "
            f"which explains {share(a.thinking_share)} of it: thinking is counted as waiting"
        )
        sure = 0.55 + 0.4 * min(a.thinking_share, 1.0)
        found.append(
            (sure, say(text, ms_per_token=a.thinking_ms_per_token, thinking_share=a.thinking_share))
        )
    if a.gate is not None:
        g = a.gate
        text = (
            f"{seconds(g.seconds)} of the mean TTFT ({share(g.share)}) passes before the request "
            f"is at the server: first tokens come when other requests end, at most "
            f"{count(g.most)} at once, and the engine's own queue time is {seconds(g.queue_s)}: "
            "the client, or a limit on the way, holds requests back while the clock runs"
        )
        found.append((0.9, say(text, gate_s=g.seconds, gate_share=g.share, queue_s=g.queue_s,
                               most=g.most)))  # fmt: skip
    if not found:
        fine = "first tokens come well before the end, in one unit, and vary"
        if a.e2e_p50_s is None:
            fine = (
                "first tokens are in one unit and vary; whether they came before the end, only the "
                "time of whole requests (e2e_us) would tell"
            )
        return Judgement(evidence=(say(fine),))
    strength = max(s for s, _ in found)
    return Judgement(
        strength=min(strength, 0.98), seconds=e.mean, evidence=tuple(s for _, s in found),
        settles=strength >= 0.7,
    )  # fmt: skip


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return f"The logged number is not a time to first token: {j.evidence[0].text}"


CAUSE = Cause(
    id="measurement_artifact",
    family="data",
    order=1,
    judge=judge,
    headline=headline,
    next_steps=(
        "Measure at the first streamed token, in one named unit, and look again "
        "(--unit FIELD=ms says what a field's unit is).",
    ),
    experiment=Experiment(
        text="See which field was taken for the first token and in which unit; then time the first "
        "streamed token of one request at the client.",
        command="ttftdoctor inspect {log}",
    ),
)

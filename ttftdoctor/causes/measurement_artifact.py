"""The number is not a time to first token."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment, Statement
from ttftdoctor.evidence import Early, Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.units import count, digits, seconds, share

#: The step that any such log calls for.
MEASURE_AGAIN = mark(
    "Measure at the first streamed token, in one named unit, and look again "
    "(--unit FIELD=ms says what a field's unit is)."
)


def judge(e: Evidence) -> Judgement:
    """Done first: if it holds, no other cause can be judged from this number."""
    a = e.artifact
    if a.n == 0:
        return lacking("ttft_us", text=tr("the log has no first-token times"))
    found: list[tuple[float, Statement]] = []
    where = tr(" on {where}", where=" ".join(a.scope)) if a.scope else ""
    if a.held is not None:
        text = tr(
            "the first token{where} comes when about {n} tokens have been made, or with the last "
            "of a shorter answer, which is {time} of the mean TTFT there ({part}): a buffer on the "
            "way holds it back",
            where=where, n=count(round(a.held.tokens)), time=seconds(a.held.seconds),
            part=share(a.held.share),
        )  # fmt: skip
        said = say(text, held_tokens=a.held.tokens, held_s=a.held.seconds, held_share=a.held.share)
        found.append((0.9 if a.held.seen else 0.75, said))
    if a.equal_share >= 0.6:
        text = tr(
            "in {part} of the requests{where} the first token comes with the last (TTFT {ttft}, "
            "whole request {whole}): not streamed, or buffered on the way",
            part=share(a.equal_share), where=where,
            ttft=seconds(a.ttft_logged_p50_s), whole=seconds(a.e2e_p50_s),
        )  # fmt: skip
        found.append((0.6 + 0.38 * a.equal_share, say(text, equal_share=a.equal_share)))
    if a.not_streamed_share >= 0.8:
        text = tr("{part} of the requests were not streamed", part=share(a.not_streamed_share))
        found.append((0.9, say(text, not_streamed_share=a.not_streamed_share)))
    if a.after_share >= 0.3:
        if a.after_factor:
            text = tr(
                "in {part} of the requests the first token would come after the end, {n} times as "
                "late: the units differ",
                part=share(a.after_share), n=digits(a.after_factor),
            )  # fmt: skip
        else:
            text = tr(
                "in {part} of the requests the first token would come after the end: the units "
                "differ",
                part=share(a.after_share),
            )
        found.append((0.9, say(text, after_share=a.after_share, factor=a.after_factor)))
    if a.two_clocks:
        text = tr(
            "in {part} of the rows ({n}) the first token would come before the request was sent: "
            "the two stamps are of different clocks, or the wrong ones were subtracted, and the "
            "other rows are off by as much",
            part=share(a.negative_share), n=count(a.negative_n),
        )  # fmt: skip
        sure = 0.75 + 0.2 * min(a.negative_share / 0.3, 1.0)
        found.append((sure, say(text, negative_share=a.negative_share, negative_rows=a.negative_n)))
    if a.early is not None:
        found.append(_early(a.early))
    if a.unit_mixed:
        found.append((0.85, say(a.unit_mixed, factor=1000)))
    if a.constant_share >= 0.9:
        text = tr(
            "TTFT is {constant} in {part} of the requests, whatever their length: a placeholder or "
            "a timer, not a measurement",
            constant=seconds(a.constant_s), part=share(a.constant_share),
        )  # fmt: skip
        found.append((0.85, say(text, constant_s=a.constant_s, constant_share=a.constant_share)))
    if a.thinking_share >= 0.4:
        text = tr(
            "TTFT grows with the {tokens} by {slope} ms each, which explains {part} of it: "
            "thinking is counted as waiting",
            tokens=tr(a.thinking_basis), slope=format(a.thinking_ms_per_token, ".3g"),
            part=share(a.thinking_share),
        )  # fmt: skip
        sure = 0.55 + 0.4 * min(a.thinking_share, 1.0)
        found.append(
            (sure, say(text, ms_per_token=a.thinking_ms_per_token, thinking_share=a.thinking_share))
        )
    if a.gate is not None:
        g = a.gate
        text = tr(
            "{time} of the mean TTFT ({part}) passes before the request is at the server: first "
            "tokens come when other requests end, at most {n} at once, and the engine's own queue "
            "time is {queue}: the client, or a limit on the way, holds requests back while the "
            "clock runs",
            time=seconds(g.seconds), part=share(g.share), n=count(g.most),
            queue=seconds(g.queue_s),
        )  # fmt: skip
        found.append((0.9, say(text, gate_s=g.seconds, gate_share=g.share, queue_s=g.queue_s,
                               most=g.most)))  # fmt: skip
    if not found:
        fine = tr("first tokens come well before the end, in one unit, and vary")
        if a.e2e_p50_s is None:
            fine = tr(
                "first tokens are in one unit and vary; whether they came before the end, only the "
                "time of whole requests (e2e_us) would tell"
            )
        return Judgement(evidence=(say(fine), *_slips(e)))
    strength = max(s for s, _ in found)
    return Judgement(
        strength=min(strength, 0.98), seconds=e.mean, evidence=tuple(s for _, s in found),
        settles=strength >= 0.7, next_steps=_steps(e),
    )  # fmt: skip


def _early(early: Early) -> tuple[float, Statement]:
    """What came too early to be a first token, and how sure that is."""
    if early.after_per_1k_s is not None:
        text = tr(
            "TTFT is {ttft} at the median and hardly grows with the prompt, but the time after it "
            "grows by {slope} for each 1,000 new tokens: prefill comes after what was stamped "
            "(headers, an empty chunk with the role), or the number is in another unit",
            ttft=seconds(early.ttft_s), slope=seconds(early.after_per_1k_s),
        )  # fmt: skip
        return 0.9, say(text, ttft_s=early.ttft_s, after_per_1k_s=early.after_per_1k_s)
    text = tr(
        "TTFT is {ttft} at the median for {n} new tokens, where each further token takes {step}: "
        "no token is made so fast; the number is in another unit, or something before the first "
        "token was stamped",
        ttft=seconds(early.ttft_s), n=count(round(early.tokens)), step=seconds(early.step_s),
    )  # fmt: skip
    return 0.85, say(text, ttft_s=early.ttft_s, tokens=early.tokens, step_s=early.step_s)


def _steps(e: Evidence) -> tuple[str, ...]:
    """What mends this log's number, where more can be said than to measure again; else nothing."""
    steps = []
    if e.artifact.two_clocks:
        steps.append(
            tr(
                "Take the start and the first token on one clock, that of the client (a monotonic "
                "one), and look at which two stamps are subtracted."
            )
        )
    if e.artifact.held is not None:
        steps.append(
            tr(
                "Turn off buffering on the way (nginx: proxy_buffering off, or the header "
                "X-Accel-Buffering: no; elsewhere also compression and inspection of the stream)."
            )
        )
    if e.artifact.early is not None:
        steps.append(
            tr(
                "Time the first chunk with content: not the headers of the answer, nor the empty "
                "chunk that only names the role."
            )
        )
    return (*steps, tr(MEASURE_AGAIN)) if steps else ()


def _slips(e: Evidence) -> tuple[Statement, ...]:
    """That some first tokens came before their requests, where they are few."""
    a = e.artifact
    if a.negative_n == 0:
        return ()
    text = tr(
        "{n} rows ({part}), which were left out, have a first token before their request was sent",
        n=count(a.negative_n), part=share(a.negative_share),
    )  # fmt: skip
    return (say(text, negative_share=a.negative_share, negative_rows=a.negative_n),)


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return tr("The logged number is not a time to first token: {reason}", reason=j.evidence[0].text)


CAUSE = Cause(
    id="measurement_artifact",
    family="data",
    order=1,
    judge=judge,
    headline=headline,
    next_steps=(MEASURE_AGAIN,),
    experiment=Experiment(
        text=mark(
            "See which field was taken for the first token and in which unit; then time the first "
            "streamed token of one request at the client."
        ),
        command="ttftdoctor inspect {log}",
    ),
)

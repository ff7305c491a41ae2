"""Prompts are long with new content: documents, tool output, large system prompts sent once."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, Step, lacking, say
from ttftdoctor.diagnosis import Experiment, Statement
from ttftdoctor.evidence import ENOUGH, SLOW_S, Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.units import count, milliseconds, seconds, share

#: A long prompt is a reason that is not ruled out by a line that tells little: so sure at least.
LEAST = 0.42
#: From this part on, the price of cached context is worth a word, and from that on the headline.
WORTH_A_WORD, WORTH_THE_HEADLINE = 0.05, 0.3


def judge(e: Evidence) -> Judgement:
    """Blame prefill of new tokens where it alone makes requests slow."""
    if not e.has("input_tokens"):
        return lacking("input_tokens", text=tr("the log does not say how long the prompts are"))
    line = e.lines.prefill
    seconds_new = e.prefill_new_s
    slow = e.prefill_new_p95_s
    lengths = [s.input_p50 for s in e.splits.by_input_length if s.input_p50]
    evidence = [
        say(
            tr("prefill of new tokens takes {mean} on average and {p95} at the 95th percentile",
               mean=seconds(seconds_new), p95=seconds(slow)),
            prefill_new_s=seconds_new, prefill_new_p95_s=slow,
        )
    ]  # fmt: skip
    if line is not None and lengths and line.ms_per_1k_tokens > 0:
        evidence.append(
            say(
                tr("prompts reach {n} tokens; 1,000 uncached tokens cost {cost}",
                   n=count(max(lengths)), cost=milliseconds(line.ms_per_1k_tokens)),
                longest_p50=max(lengths), ms_per_1k_tokens=line.ms_per_1k_tokens,
            )
        )  # fmt: skip
    evidence += _context(e)
    strength = 0.0
    part = e.share(seconds_new) or 0.0
    told = e.told
    if slow >= SLOW_S and part >= 0.3 and e.untold_s == 0.0:
        strength = 0.5 + 0.4 * min(part, 1.0)
        if not e.fixed_separable:
            strength *= 0.6
        if e.few_new and told is None:
            strength *= 0.7  # so few tokens take that long on a slow server only
        if told is not None and told < ENOUGH:
            strength = max(strength * (0.4 + 0.6 * told / ENOUGH), LEAST)
            evidence.append(_poorly_told(e))
        if _unsure(e):
            text = tr(
                "of {part} of the prompt tokens nothing tells whether they repeat earlier ones: "
                "session ids would decide",
                part=share(e.unknown_ancestry),
            )
            evidence.append(say(text, unknown_share=e.unknown_ancestry))
        if _unknown(e):
            strength = min(strength, 0.5)
            text = tr(
                "whether these prompts repeat earlier ones cannot be told: the log names no "
                "sessions, prompt blocks or cached tokens"
            )
            evidence.append(say(text))
    return Judgement(
        strength=strength, seconds=seconds_new - e.untold_s, evidence=tuple(evidence),
        against=_against(e, slow, part),
        growth_seconds=e.growth_accounts.get("prefill_new"),
        needs=("session_id", "cached_tokens") if _unknown(e) or _unsure(e) else (),
    )  # fmt: skip


def _poorly_told(e: Evidence) -> Statement:
    explained = None if e.spread is None else e.spread.explained_by_model
    explainable = None if e.spread is None else e.spread.explainable
    text = tr(
        "but the cost line explains {explained} of the differences between requests, where "
        "{explainable} can be told from the log: something else moves TTFT",
        explained=share(explained),
        explainable=share(explainable),
    )
    return say(text, explained=explained, explainable=explainable)


def _context(e: Evidence) -> list[Statement]:
    """What cached context costs, which the ledger books with prefill of new tokens."""
    if e.context_s <= WORTH_A_WORD * e.prefill_new_s:
        return []
    text = tr(
        "of that {time} is what cached context costs, and {rest} what new tokens do",
        time=seconds(e.context_s),
        rest=seconds(e.prefill_new_s - e.context_s),
    )
    return [say(text, context_s=e.context_s)]


def _against(e: Evidence, slow: float, part: float) -> str:
    if slow < SLOW_S:
        return tr("prefill of new tokens takes {p95} at the 95th percentile, which is not slow",
                  p95=seconds(slow))  # fmt: skip
    if e.untold_s > 0:
        return tr(
            "new tokens are few ({n} at the 95th percentile) and do not tell the slow requests "
            "from the others",
            n=count(e.uncached_p95),
        )
    return tr("prefill of new tokens is {part} of the mean TTFT: most of it is something else",
              part=share(part))  # fmt: skip


def _unknown(e: Evidence) -> bool:
    """Whether nothing tells new tokens from repeated ones."""
    return e.repeated.grade == "none" and e.reuse is None


def _unsure(e: Evidence) -> bool:
    """Whether much of what is taken for new may repeat, cached tokens or not."""
    return not _unknown(e) and e.unknown_ancestry >= 0.3 and e.longest_prompts > 1500


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    if _unknown(e) or _unsure(e):
        return tr(
            "Prompts are long: their own prefill is {time} of the mean TTFT of {mean} ({part}); "
            "whether they repeat earlier ones, this log cannot tell: session ids would decide",
            time=seconds(j.seconds), mean=seconds(e.mean), part=share(e.share(j.seconds)),
        )  # fmt: skip
    if j.seconds and e.context_s >= WORTH_THE_HEADLINE * j.seconds:
        return tr(
            "Prompts are long: their own prefill is {time} of the mean TTFT of {mean} ({part}), of "
            "which {context} is what cached context costs: hits are not free",
            time=seconds(j.seconds), mean=seconds(e.mean), part=share(e.share(j.seconds)),
            context=seconds(e.context_s),
        )  # fmt: skip
    return tr(
        "Prompts are long with new content: their own prefill is {time} of the mean TTFT of {mean} "
        "({part}) and repeats nothing",
        time=seconds(j.seconds), mean=seconds(e.mean), part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="organic_long_input",
    family="input",
    order=70,
    judge=judge,
    headline=headline,
    next_steps=(
        Step(
            mark(
                "If the prompts belong to conversations, log session ids or cached tokens first: "
                "repeated history looks the same without them."
            ),
            where=lambda e: _unknown(e) or _unsure(e),
        ),
        mark("Send less: retrieve fewer passages, cut tool output, compact; or prefill faster."),
        mark("Use chunked prefill so that long prompts do not stall the short ones."),
    ),
    remedies=("history_compaction", "chunked_prefill"),
    weight=0.8,
    experiment=Experiment(
        text=mark(
            "See what the slowest requests differ in: if new input is the cause, in their "
            "uncached tokens, and not in the requests in flight."
        ),
        command="ttftdoctor contrast {log} --select 'ttft > p95'",
    ),
)

"""The first screen: the verdict, how sure, where, three numbers that prove it, what to do first."""

from __future__ import annotations

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.language import tr
from ttftdoctor.pages.heading import heading
from ttftdoctor.pages.ledger import reading
from ttftdoctor.pages.markup import bars, esc, flagged, head, listed, paragraph, sentence
from ttftdoctor.pages.proof import proof
from ttftdoctor.pages.shell import brand
from ttftdoctor.prefixes.sections import headline
from ttftdoctor.report import (
    badge,
    best_remedy,
    confidence,
    cost_sentences,
    gain_sentence,
    ledger_groups,
    missing,
    prefix_sentences,
    primary,
    remedy_name,
    scope,
    severity,
    slo_sentence,
    title,
    ttft_figures,
    who,
)
from ttftdoctor.units import seconds, share

#: Sentences of evidence on the first screen; all of them stand in the reading.
FEW = 3


def opening(d: Diagnosis) -> str:
    """The first screen and the warnings below it."""
    v = d.verdict
    facts = [f"<code>{esc(v.primary_cause)}</code> {esc(title(v.primary_cause))}"]
    if v.primary_cause != "insufficient_data":
        facts.append(esc(confidence(v.confidence)))
        facts.append(esc(scope(d), 600))
    parts = [
        brand(d.version, who(d)),
        heading(badge(v), severity(v), v.headline, facts, proof(d), _levels(d)),
        f'<div class="answer"><section>{_why(d)}</section>',
        f'<section class="do">{_do(d)}</section></div>',
    ]
    if d.warnings:
        warned = head("h2", tr("Warnings")) + listed(d.warnings)
        parts.append(f'<section class="warnings">{warned}</section>')
    return "\n".join(parts)


def _levels(d: Diagnosis) -> str:
    """Today's TTFT, and how many met the target; empty without a TTFT."""
    if d.population.with_ttft == 0:
        return ""
    return paragraph([sentence(ttft_figures(d)), slo_sentence(d)])


def _why(d: Diagnosis) -> str:
    finding = primary(d)
    evidence = [sentence(s.text) for s in finding.evidence] if finding else []
    groups = ledger_groups(d)
    if d.verdict.primary_cause == "healthy" and groups:
        evidence = [*evidence[: FEW - 1], reading(groups)]
    out = [head("h2", tr("Why")), listed(evidence[:FEW] or prefix_sentences(d), "evidence")]
    told = _all_the_same(d) if d.verdict.primary_cause == "insufficient_data" else []
    if told:
        out += [head("h3", tr("What it tells all the same")), listed(told, "evidence")]
    for a in d.verdict.amplifiers:
        cause, text = f"<code>{esc(a.id)}</code>", esc(a.text.rstrip(".。"))
        said = (
            tr("{cause}: {text}.", cause=cause, text=text)
            if a.share_of_ttft is None
            else tr(
                "{cause}, {part} of TTFT: {text}.",
                cause=cause, part=esc(share(a.share_of_ttft)), text=text,
            )
        )  # fmt: skip
        worse = esc(tr("Made worse by"))
        out.append(f'<p class="amplifier"><b>{worse}</b> {said}</p>')
    known = {a.id for a in d.verdict.amplifiers}
    others = [c for c in d.verdict.contributing if c not in known]
    if others:
        also, names = esc(tr("Also")), tr(", ").join(f"<code>{esc(c)}</code>" for c in others)
        out.append(f'<p class="amplifier"><b>{also}</b> {names}</p>')
    return "".join(out)


def _all_the_same(d: Diagnosis) -> list[str]:
    """What is known without an answer: what prompts share, what it costs, how long they wait."""
    out = [sentence(ttft_figures(d))] if d.population.with_ttft else []
    if d.prefix is not None and d.prefix.ladder is not None:
        out.append(headline(d.prefix))
    if d.repeated_prefix.input_tokens:
        out += prefix_sentences(d)[: 1 if out else 3]
    line = d.cost_lines.prefill
    if line is not None and line.ms_per_1k_tokens > 0:
        out += cost_sentences(d)[:1]
    return out


def _do(d: Diagnosis) -> str:
    v, remedy = d.verdict, best_remedy(d)
    healthy = v.primary_cause == "healthy"
    out = []
    if remedy is not None:
        out.append(head("h2", tr("Do first")))
        out.append(f'<p class="first">{esc(remedy_name(remedy))}</p>')
        out.append(f"<p>{esc(gain_sentence(remedy, d.population.ttft_mean_s))}</p>")
        before, after = d.population.ttft_mean_s, remedy.ttft_mean_s
        if before and after is not None:
            out.append(
                bars([(tr("today"), before, seconds(before), "now"),
                      (tr("then"), after, seconds(after), "then")])
            )  # fmt: skip
        if remedy.cost:
            cost = tr("Cost: {cost}", cost=remedy.cost)
            out.append(f'<p class="quiet">{esc(cost)}</p>')
    elif healthy:
        nothing = esc(tr("Nothing needs to be done."))
        out.append(head("h2", tr("Do first")) + f"<p>{nothing}</p>")
    if v.next_steps:
        out.append(head("h3" if out else "h2", tr("Next")))
        steps = "".join(f"<li>{flagged(step)}</li>" for step in v.next_steps)
        out.append(f"<ol>{steps}</ol>")
    want = missing(d) if v.primary_cause == "insufficient_data" else []
    if want:
        names = " ".join(f"<code>{esc(name)}</code>" for name in want)
        out.append(head("h3" if out else "h2", tr("Missing in the log")))
        out.append(f"<p>{names}</p>")
    return "".join(out)

"""From a log that was read to its diagnosis: examine, judge, prescribe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from ttftdoctor import catalog
from ttftdoctor.diagnosis import (
    NOT_CHOSEN,
    Diagnosis,
    Finding,
    Floor,
    Gain,
    Population,
    Slo,
    Verdict,
)
from ttftdoctor.evidence import Evidence
from ttftdoctor.examine import Examined, examine
from ttftdoctor.experiment import expecting, filled
from ttftdoctor.guide import IMPORTANT, unused_note
from ttftdoctor.hardware import Machine, floor_of
from ttftdoctor.intake import Log
from ttftdoctor.intake.again import values_of
from ttftdoctor.intake.layers import SEEN
from ttftdoctor.language import carry, tr
from ttftdoctor.measure.lines import Lines
from ttftdoctor.measure.replay import Outcome
from ttftdoctor.measure.rows import Rows
from ttftdoctor.measure.splitters import LEFT_OVER, path_of, scope_of, splitters
from ttftdoctor.remedies import Remedy, Settings, why_little
from ttftdoctor.treatment import Treatment
from ttftdoctor.units import count, share
from ttftdoctor.verdict import decide
from ttftdoctor.version import tool_version

if TYPE_CHECKING:
    from ttftdoctor.extracts.whole import Whole
    from ttftdoctor.prefixes.records import PrefixFindings
    from ttftdoctor.prices import Pricing, Till

#: A field is a path if no more than this part of what was unexplained remains so.
STILL = 0.6
#: So many formats that have no request in common are hardly the layers of one service.
MANY_FORMATS = 3
#: One row whose first token comes before its request may be a slip; so many are worth a warning.
SOME_SLIPS = 2


def study(
    log: Log,
    named: str,
    settings: Settings,
    slo_ttft_s: float | None = None,
    machine: Machine | None = None,
    pricing: Pricing | None = None,
    *,
    draw: bool = True,
    whole: Whole | None = None,
    again: bool = False,
) -> tuple[Diagnosis, Examined]:
    """The diagnosis of a log, and what it was measured from.

    ``named`` is the log as it is written on a command line; charts are made if there is something
    to ``draw``; the rows of the log are an extract of the ``whole``, where there is one. The log
    may be read ``again`` for fields that no column uses, where the columns leave much unexplained.
    """
    with ThreadPoolExecutor(max_workers=1) as beside:
        later: list[tuple[Till | None, Future[PrefixFindings | None]]] = []

        def known(rows: Rows, lines: Lines | None) -> None:
            # Work on long arrays, which leaves the many small steps of the rest their turn.
            till = _till(rows, pricing)
            if till is not None and whole is not None:
                till = replace(till, times=whole.times(rows), all_s=whole.span_s)
            # What is reused across an extract's edges cannot be seen in it.
            part = _prefix if whole is None else _no_prefix
            later.append((till, beside.submit(carry(part), log, rows, lines, till)))

        examined = examine(
            log, draw=draw, beside=beside, known=known,
            around=None if whole is None else whole.around,
        )  # fmt: skip
        if again and whole is None:
            examined = _by_fields(log, examined, draw=draw, beside=beside)
        said: tuple[str, ...] = ()
        population = examined.evidence.population
        if whole is not None:
            said = whole.warnings(examined.evidence)
            part, population = population, whole.population(population, examined.rows)
            examined = replace(
                examined,
                evidence=whole.evidence(examined.evidence, examined.rows),
                replay=whole.served(examined.replay, part, population),
            )
        ((till, prefix),) = later
        verdict, findings = decide(examined.evidence, catalog.causes())
        verdict = replace(
            verdict,
            headline=_unread(log) or verdict.headline,
            experiment=filled(verdict.experiment, named),
        )
        findings = _with_rows(log, examined, findings)
        diagnosis = _assemble(
            log, examined, population, verdict, findings, settings, slo_ttft_s, machine, till
        )
        diagnosis = replace(
            diagnosis,
            prefix=prefix.result(),
            warnings=(*said, *diagnosis.warnings),
            extract=None if whole is None else whole.extract(),
        )
    if draw:
        from ttftdoctor.pages.pictures import complete

        charts = complete(
            diagnosis.charts, examined.rows, examined.ledger, examined.replay, diagnosis.remedies,
            log.requests, [record.path for record in log.inputs],
        )  # fmt: skip
        diagnosis = replace(diagnosis, charts=charts)
    return diagnosis, examined


def _by_fields(log: Log, examined: Examined, *, draw: bool, beside: ThreadPoolExecutor) -> Examined:
    """The same with what fields tell that no column uses, where much is left unexplained.

    One whose value stands for a constant is a path like any other, and is examined as one.
    """
    e, place = examined.evidence, examined.rows.place
    little = (e.share(e.unexplained_s) or 0.0) < LEFT_OVER
    if little or e.contrast is not None or examined.ledger is None or place is None:
        return examined
    known = values_of(log)
    if known is None:
        return examined
    values, seen = known[0][place], known[1][place]
    found = splitters(examined.rows, examined.ledger, values, seen, e.unexplained_s)
    if not found:
        return examined
    # A constant is paid by all: of a part of the rows it could not be taken out.
    path = path_of(found) if seen.all() else None
    if path is not None:
        more = {path.field: scope_of(values, path.field)}
        as_path = examine(log, draw=draw, beside=beside, more=more)
        contrast = as_path.evidence.contrast
        better = as_path.evidence.unexplained_s < STILL * e.unexplained_s
        if better and contrast is not None and contrast.column == path.field:
            other = None if found[0].field == path.field else found[0]
            return replace(as_path, evidence=replace(as_path.evidence, splitter=other))
    return replace(examined, evidence=replace(e, splitter=found[0]))


def _unread(log: Log) -> str | None:
    """What to say of a log of which no row can be used; None of any other."""
    if log.requests.height or not any(one.rows_read for one in log.inputs):
        return None
    counts: Counter[str] = Counter()
    for one in log.inputs:
        counts.update(one.rows_rejected)
    if any(reason in counts for reason in NOT_CHOSEN):
        return None
    said = tr(", ").join(f"{count(n)} {reason}" for reason, n in counts.most_common(3))
    return tr("No row of the log could be used ({reasons})", reasons=said)


def _assemble(
    log: Log,
    examined: Examined,
    population: Population,
    verdict: Verdict,
    findings: Sequence[Finding],
    settings: Settings,
    slo_ttft_s: float | None,
    machine: Machine | None,
    till: Till | None,
) -> Diagnosis:
    """All but the prefix findings."""
    e: Evidence = examined.evidence
    warnings = [*warnings_of(log, e), *(till.warnings if till else ())]
    missing = (name for name in IMPORTANT if log.requests[name].null_count() == len(log.requests))
    unused = unused_note(log.beside, missing)
    grades = replace(e.grades, notes=(*unused, *e.grades.notes, *log.notes))
    if log.linked and grades.session == "logged":
        grades = replace(grades, session="linked")
    remedies = _remedies(examined, findings, verdict.primary_cause, settings, till)
    return Diagnosis(
        version=tool_version(),
        inputs=log.inputs,
        population=population,
        evidence=grades,
        verdict=replace(
            verdict, experiment=expecting(verdict.experiment, remedies, population.ttft_mean_s)
        ),
        causes=tuple(findings),
        ledger=e.ledger,
        splits=e.splits,
        cost_lines=e.lines,
        repeated_prefix=e.repeated if till is None else till.waste(e.repeated),
        remedies=remedies,
        slo=_slo(examined, slo_ttft_s),
        floor=_floor(e, machine),
        warnings=tuple(dict.fromkeys(warnings)),
        charts=examined.charts,
        # Of a number that is no TTFT, or of too few, there is nothing to foretell.
        spread=None if verdict.family == "data" else e.spread,
    )


def warnings_of(log: Log, evidence: Evidence) -> list[str]:
    """What makes the figures of a log doubtful, in the language spoken."""
    return [*_mixed(log), *log.warnings, *_warnings(evidence)]


def _mixed(log: Log) -> list[str]:
    """A doubt about files of many formats that have no request in common."""
    used = [one for one in log.inputs if one.rows_used]
    formats = len({one.format for one in used})
    if formats < MANY_FORMATS or any(SEEN in one.rows_rejected for one in log.inputs):
        return []
    return [
        tr(
            "the logs are of {n} formats and share no request: if they are of different services, "
            "one diagnosis of all says little; give them one by one",
            n=formats,
        )
    ]


def _warnings(e: Evidence) -> list[str]:
    out = []
    a = e.attempts
    if a is not None and a.failed_share >= 0.1:
        out.append(
            tr(
                "{part} of the requests failed or were refused ({limited} by a limit): what is "
                "left may not stand for them",
                part=share(a.failed_share), limited=count(a.rate_limited),
            )
        )  # fmt: skip
    b = e.artifact
    if b.negative_n >= SOME_SLIPS and not b.two_clocks:
        out.append(
            tr(
                "{n} rows ({part}) were left out because their first token would come before the "
                "request was sent: if two clocks were subtracted, the other TTFTs are off by as "
                "much",
                n=count(b.negative_n), part=share(b.negative_share),
            )
        )  # fmt: skip
    if e.lines.prefill is not None and not e.fixed_separable and e.has("input_tokens"):
        out.append(
            tr(
                "the lengths hardly vary: the constant part and the cost per token cannot be told "
                "apart"
            )
        )
    if 0 < e.population.with_ttft < 30:
        out.append(
            tr("only {n} requests have a TTFT: intervals are wide", n=e.population.with_ttft)
        )
    if e.repeated.grade == "inferred":
        out.append(
            tr(
                "repeated tokens are inferred from the lengths of turns; an edited history would "
                "repeat less"
            )
        )
    return out


def _prefix(log: Log, rows: Rows, lines: Lines | None, till: Till | None) -> PrefixFindings | None:
    """Where reusable work is lost, where the log counts cached tokens or tells prompts apart."""
    if rows.reuse_grade not in ("content", "reported"):
        return None
    from ttftdoctor.prefixes.look import look
    from ttftdoctor.prefixes.rungs import Asked

    return look(log, rows, Asked(), lines, till)


def _no_prefix(*_: object) -> None:
    return None


def _till(rows: Rows, pricing: Pricing | None) -> Till | None:
    """What turns waste and gains into money, where somebody asked."""
    if pricing is None:
        return None
    from ttftdoctor.prices import till_of

    return till_of(rows, pricing)


def _with_rows(log: Log, examined: Examined, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The causes at work with their worst requests, and one of them spelled out."""
    from ttftdoctor.measure.worst import Blame, worst

    blame = Blame(examined.rows, examined.ledger, examined.charged)
    paths = [record.path for record in log.inputs]
    out = []
    for finding in findings:
        if finding.status not in ("primary", "contributing", "minor"):
            out.append(finding)
            continue
        rows, example = worst(blame, finding.id, log.requests, paths)
        out.append(replace(finding, rows=rows, worked_example=example))
    return tuple(out)


def _remedies(
    examined: Examined,
    findings: Sequence[Finding],
    primary: str,
    settings: Settings,
    till: Till | None,
) -> tuple[Gain, ...]:
    """Predict every remedy that fits, and all that help together."""
    e, served = examined.evidence, examined.replay
    if served is None or primary in ("measurement_artifact", "insufficient_data"):
        return ()
    present = {f.id for f in findings if f.status in ("primary", "contributing", "minor")}
    chosen: list[Remedy] = [
        r
        for r in catalog.remedies()
        if (r.fits is None or r.fits(e)) and (r.always or present.intersection(r.helps))
    ]
    gains = []
    together: list[Treatment] = []
    names: list[str] = []
    doubts: list[str] = []
    for remedy in chosen:
        spoilt = None if remedy.spoilt is None else remedy.spoilt(e, primary)
        treatment = remedy.treat(settings) if spoilt is None else Treatment()
        outcome = served.try_(treatment)
        doubt = None if remedy.doubt is None else remedy.doubt(e)
        if outcome.gain_share > 0.01:
            together.append(treatment)
            names.append(remedy.id)
            doubts.extend([] if doubt is None else [doubt])
        gains.append(
            Gain(
                id=remedy.id,
                title=tr(remedy.title),
                assumptions=(*map(tr, remedy.assumptions), *served.assumes),
                cost=tr(remedy.cost),
                applies_to=remedy.helps,
                note=spoilt or doubt or why_little(remedy, e, outcome.gain_share),
                **_figures(outcome, doubt is not None),
                **_saved(till, treatment, outcome),
            )
        )
    if len(together) > 1:
        joined = _joined(together)
        outcome = served.try_(joined)
        best = max(served.try_(treatment).gain_share for treatment in together)
        if joined.reuse and joined.compact_to is not None and outcome.gain_share < best:
            # A summary is new text: it is computed where the history would have been cached.
            kept = [n for n, t in enumerate(together) if t.compact_to is None]
            names = [names[n] for n in kept]
            joined = _joined([together[n] for n in kept])
            outcome = served.try_(joined)
        gains.append(
            Gain(
                id="all_together",
                title=tr("All of these together"),
                assumptions=(
                    tr("served once with all of: {remedies}", remedies=tr(", ").join(names)),
                    *served.assumes,
                ),
                cost=tr("the cost of each"),
                applies_to=(),
                note=doubts[0] if doubts else None,
                **_figures(outcome, bool(doubts)),
                **_saved(till, joined, outcome),
            )
        )
    return tuple(gains)


def _joined(treatments: Sequence[Treatment]) -> Treatment:
    return reduce(Treatment.join, treatments, Treatment())


def _figures(outcome: Outcome, doubtful: bool) -> dict[str, Any]:
    """The figures of a gain; of one that may not come at all the interval begins at nothing."""
    low, high = outcome.interval
    return {
        "ttft_mean_s": outcome.mean,
        "ttft_p50_s": outcome.p50,
        "ttft_p95_s": outcome.p95,
        "gain_share": outcome.gain_share,
        "interval": (min(low, 0.0) if doubtful else low, high),
    }


def _saved(till: Till | None, treatment: Treatment, outcome: Outcome) -> dict[str, Any]:
    """The fields of a gain that speak of money."""
    if till is None:
        return {}
    saved = till.saved(treatment, outcome)
    return {
        "gpu_seconds_saved": saved.gpu_seconds,
        "money_saved": saved.money,
        "money_saved_per_day": saved.money_per_day,
    }


def _slo(examined: Examined, target_s: float | None) -> Slo | None:
    rows = examined.rows
    if target_s is None or not rows.measured.any():
        return None
    met = rows.ttft[rows.measured] <= target_s
    span = float(rows.start[rows.measured].max() - rows.start[rows.measured].min())
    goodput = float(met.sum()) / span if rows.order_known and span > 0 else None
    return Slo(target_s=target_s, attainment=float(met.mean()), goodput_per_s=goodput)


def _floor(e: Evidence, machine: Machine | None) -> Floor | None:
    if machine is None:
        return None
    prefill, decode = e.lines.prefill, e.lines.decode
    lengths = [s.input_p50 for s in e.splits.by_input_length if s.input_p50]
    typical = sorted(lengths)[len(lengths) // 2] if lengths else 2000.0
    return floor_of(
        machine,
        prefill.ms_per_1k_tokens if prefill else None,
        decode.ms_per_token if decode else None,
        typical,
    )

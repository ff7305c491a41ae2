"""The whole flow, spelled once: read, examine, judge, prescribe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Diagnosis, Finding, Floor, Gain, Slo, Verdict
from ttftdoctor.errors import TTFTDoctorError
from ttftdoctor.evidence import Evidence
from ttftdoctor.examine import Examined, examine
from ttftdoctor.intake import Log, read_log
from ttftdoctor.readers import Options
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.roofline import Machine, floor_of
from ttftdoctor.treatment import Treatment
from ttftdoctor.units import share
from ttftdoctor.verdict import decide


def tool_version() -> str:
    """The installed version, or 0 from a bare checkout."""
    try:
        return version("ttftdoctor")
    except PackageNotFoundError:
        return "0"


def read(
    *paths: str,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Log:
    """Read logs into one request table.

    Parameters
    ----------
    paths
        Files, globs, folders, or ``-``.
    format
        Name of a format; recognised from the first records by default.
    columns, units
        Canonical column to field, and field to unit, for logs with names of their own.
    """
    options = Options(columns=columns or {}, units=units or {})
    return read_log([str(p) for p in paths], format=format, options=options, progress=progress)


def diagnose(
    *logs: str | Log,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    compact_to: int = 8000,
    slo_ttft_s: float | None = None,
    machine: Machine | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Diagnosis:
    """Say why the time to first token is what it is.

    Parameters
    ----------
    logs
        Paths, or one :class:`Log` from :func:`read`.
    compact_to
        Length in tokens that the compaction remedy cuts histories to.
    slo_ttft_s
        Target for TTFT in seconds; adds attainment and goodput.
    machine
        Hardware and model size; adds what they allow beside what was measured.

    Examples
    --------
    >>> diagnose("sample_logs/peak_hour.jsonl").verdict.primary_cause
    'repeated_prefix_no_reuse'
    """
    if len(logs) == 1 and isinstance(logs[0], Log):
        log = logs[0]
    else:
        paths = [str(path) for path in logs if not isinstance(path, Log)]
        if len(paths) != len(logs):
            raise TTFTDoctorError("give paths, or one log that was read already")
        log = read(*paths, format=format, columns=columns, units=units, progress=progress)
    examined = examine(log)
    verdict, findings = decide(examined.evidence, catalog.causes())
    return _assemble(log, examined, verdict, findings, Settings(compact_to), slo_ttft_s, machine)


def _assemble(
    log: Log,
    examined: Examined,
    verdict: Verdict,
    findings: Sequence[Finding],
    settings: Settings,
    slo_ttft_s: float | None,
    machine: Machine | None,
) -> Diagnosis:
    e: Evidence = examined.evidence
    warnings = [*log.warnings, *_warnings(e)]
    return Diagnosis(
        version=tool_version(),
        inputs=log.inputs,
        population=e.population,
        evidence=replace(e.grades, notes=(*e.grades.notes, *log.notes)),
        verdict=verdict,
        causes=tuple(findings),
        ledger=e.ledger,
        splits=e.splits,
        cost_lines=e.lines,
        repeated_prefix=e.repeated,
        remedies=_remedies(examined, findings, verdict.primary_cause, settings),
        slo=_slo(examined, slo_ttft_s),
        floor=_floor(e, machine),
        warnings=tuple(dict.fromkeys(warnings)),
        charts=examined.charts,
    )


def _warnings(e: Evidence) -> list[str]:
    out = []
    a = e.attempts
    if a is not None and a.failed_share >= 0.1:
        out.append(
            f"{share(a.failed_share)} of the requests failed or were refused "
            f"({a.rate_limited:,} by a limit): what is left may not stand for them"
        )
    if e.lines.prefill is not None and not e.fixed_separable and e.has("input_tokens"):
        out.append(
            "the lengths hardly vary: the constant part and the cost per token cannot be told apart"
        )
    if 0 < e.population.with_ttft < 30:
        out.append(f"only {e.population.with_ttft} requests have a TTFT: intervals are wide")
    if e.repeated.grade == "inferred":
        out.append(
            "repeated tokens are inferred from the lengths of turns; an edited history would "
            "repeat less"
        )
    return out


def _remedies(
    examined: Examined, findings: Sequence[Finding], primary: str, settings: Settings
) -> tuple[Gain, ...]:
    """Predict every remedy that fits, and all that help together."""
    e = examined.evidence
    if examined.replay is None or primary in ("measurement_artifact", "insufficient_data"):
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
    for remedy in chosen:
        treatment = remedy.treat(settings)
        outcome = examined.replay.try_(treatment)
        if outcome.gain_share > 0.01:
            together.append(treatment)
            names.append(remedy.id)
        gains.append(
            Gain(
                id=remedy.id,
                title=remedy.title,
                ttft_mean_s=outcome.mean,
                ttft_p50_s=outcome.p50,
                ttft_p95_s=outcome.p95,
                gain_share=outcome.gain_share,
                interval=outcome.interval,
                assumptions=remedy.assumptions,
                cost=remedy.cost,
                applies_to=remedy.helps,
            )
        )
    if len(together) > 1:
        joined = Treatment()
        for treatment in together:
            joined = joined.join(treatment)
        outcome = examined.replay.try_(joined)
        gains.append(
            Gain(
                id="all_together",
                title="All of these together",
                ttft_mean_s=outcome.mean,
                ttft_p50_s=outcome.p50,
                ttft_p95_s=outcome.p95,
                gain_share=outcome.gain_share,
                interval=outcome.interval,
                assumptions=("served once with all of: " + ", ".join(names),),
                cost="the cost of each",
                applies_to=(),
            )
        )
    return tuple(gains)


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

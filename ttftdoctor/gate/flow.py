"""The gate, spelled once: read both sides, sum them up, judge, and say what moved."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ttftdoctor.choose import Only, kept
from ttftdoctor.errors import InputError, TTFTDoctorError, UsageError
from ttftdoctor.gate.baseline import Baseline, merged, without_copies
from ttftdoctor.gate.judge import judge
from ttftdoctor.gate.moved import moved
from ttftdoctor.gate.policy import Asked, find_policy, policy_without_file, read_policy
from ttftdoctor.gate.records import Check
from ttftdoctor.gate.rules import Policy, default_policy
from ttftdoctor.gate.seen import Seen, seen_in
from ttftdoctor.gate.sketch import Sketch, sketch_of
from ttftdoctor.intake import Log
from ttftdoctor.language import mark, speaking, tr
from ttftdoctor.measure.rows import Rows
from ttftdoctor.remedies import Settings
from ttftdoctor.run import read
from ttftdoctor.sources import expand, open_address
from ttftdoctor.sources.addresses import is_address, shown
from ttftdoctor.sources.addresses import label as label_of
from ttftdoctor.study import study, warnings_of
from ttftdoctor.version import tool_version

#: What stands near the head of a baseline file.
_MARK = b'"ttftdoctor.baseline/'
_HEAD_BYTES = 400
#: A file that claims to be a baseline and is larger than this was not written by us.
_MOST_BYTES = 50_000_000

Source = str | Path | Log | Baseline


def baseline(
    *logs: Source,
    runs: bool = False,
    label: str | None = None,
    warm_up: bool | float = True,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Baseline:
    """Sum up the logs of a service that is fine, for later checks.

    Parameters
    ----------
    logs
        Paths, globs or folders; logs from :func:`ttftdoctor.read`; baselines or their files, whose
        runs are taken over.
    runs
        Whether each log (a file, or a folder) is a run by itself. By default all are parts of one.
    label
        A name for reports; that of the first file by default.
    warm_up
        True finds the slow head of each run, False keeps everything, a number sets so many seconds
        of each run aside.
    only
        Which rows of the logs are summed up; all by default.

    Raises
    ------
    InputError
        If a log or a baseline cannot be read.

    Examples
    --------
    >>> base = baseline("run1.jsonl", "run2.jsonl", runs=True)  # doctest: +SKIP
    >>> Path("ttft-baseline.json").write_text(base.fit_in().to_text())  # doctest: +SKIP
    """
    reader = _Reader(runs, warm_up, format, columns, units, only, progress)
    return reader.side(logs, label).baseline


def check(
    current: Source | Sequence[Source],
    baseline: Source | Sequence[Source],
    *,
    policy: str | Path | Policy | None = None,
    slo_ttft_s: float | None = None,
    runs: bool = False,
    warm_up: bool | float | None = None,
    label: str | None = None,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Check:
    """Say whether a service got slower than its baseline, whatever the traffic was.

    Parameters
    ----------
    current, baseline
        Either side: logs, or baseline files, or several of them.
    policy
        A policy file, or a policy. By default ``ttftdoctor.toml`` or ``pyproject.toml`` of the
        working directory or above, else the built-in limits.
    slo_ttft_s
        Target for TTFT in seconds; adds goodput and attainment.
    warm_up
        As in :func:`baseline`; by default as the policy says.
    only
        Which rows count. A window of time is of the current side alone; of the baseline's logs
        (not of its files, which hold sums) the same expression holds.

    Raises
    ------
    InputError
        If a log or a baseline cannot be read.
    UsageError
        If the policy says something that is not understood.
    """
    asked = _asked(policy, slo_ttft_s)
    warm = asked.warm_up if warm_up is None else warm_up
    reader = _Reader(runs, warm, format, columns, units, only, progress)
    timeless = None if only is None else replace(only, since=None, until=None)
    # The baseline first: where it cannot be read, nobody waits for the log.
    before = replace(reader, only=timeless).side(_listed(baseline))
    after = reader.side(_listed(current), label)
    version = tool_version()
    found = judge(before.baseline, after.baseline, asked.policy, version=version)
    warnings = [
        *(tr("baseline: {warning}", warning=text) for text in before.warnings),
        *(tr("now: {warning}", warning=text) for text in after.warnings),
    ]
    found = replace(found, warnings=tuple(dict.fromkeys([*found.warnings, *warnings])))
    if found.outcome != "fail":
        return found
    # A policy may ask for one metric only; what moved is looked for in all of them.
    inside = judge(before.baseline, after.baseline, default_policy(), version=version).metrics
    seen = after.seen
    if seen is not None and any(m.metric == "hit_share" and m.outcome == "fail" for m in inside):
        seen = reader.closer(seen, after.paths)
    return replace(found, moved=moved(before.baseline, after.baseline, inside, seen))


def _listed(given: Source | Sequence[Source]) -> Sequence[Source]:
    return [given] if isinstance(given, (str, Path, Log, Baseline)) else given


def _asked(policy: str | Path | Policy | None, slo_ttft_s: float | None) -> Asked:
    if isinstance(policy, Policy):
        return Asked(policy)
    if policy is not None:
        return read_policy(Path(policy), slo_ttft_s=slo_ttft_s)
    here = Path.cwd()
    found = find_policy(here)
    if found is None:
        return policy_without_file(slo_ttft_s)
    return read_policy(found, slo_ttft_s=slo_ttft_s, shown=os.path.relpath(found, here))


@dataclass(frozen=True)
class _Side:
    baseline: Baseline
    seen: Seen | None
    warnings: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Reader:
    """How logs are read and summed up, the same for both sides."""

    runs: bool
    warm_up: bool | float
    format: str | None
    columns: dict[str, str] | None
    units: dict[str, str] | None
    only: Only | None
    progress: Callable[[str, int], None] | None

    def side(self, sources: Sequence[Source], label: str | None = None) -> _Side:
        """One side from logs, baselines and files of either kind."""
        parts: list[Baseline] = []
        sketches: list[Sketch] = []
        warnings: list[str] = []
        seen: Seen | None = None
        paths: list[str] = []
        name = ""
        for source in sources:
            if isinstance(source, Baseline):
                parts.append(source)
                continue
            if isinstance(source, Log):
                sketch, seen, said = self.sketch(kept(source, self.only))
                sketches.append(sketch)
                warnings += said
                continue
            for path in _files(str(source)):
                found = _baseline_at(path)
                if found is not None:
                    parts.append(found)
                else:
                    name = name or ("standard input" if path == "-" else label_of(path))
                    paths.append(path)
        # Parts of one run are read together, so that a session may go on in the next file.
        for group in [[path] for path in paths] if self.runs else [paths] if paths else []:
            sketch, seen, said = self.sketch(self.read(group))
            sketches.append(sketch)
            warnings += said
        if sketches:
            parts.append(Baseline(label or name or "log", tuple(sketches)))
        if not parts:
            raise UsageError("there is no log on one side of the comparison")
        single = len(sketches) == 1 and len(parts) == 1
        whole, again = without_copies(parts[0] if len(parts) == 1 else merged(parts))
        if again:
            warnings.append(
                tr("{n} of the runs hold the same requests as another one: counted once", n=again)
            )
        if label is not None:
            whole = replace(whole, label=label)
        return _Side(whole, seen if single else None, tuple(dict.fromkeys(warnings)), tuple(paths))

    def read(self, paths: Sequence[str]) -> Log:
        return read(
            *paths, format=self.format, columns=self.columns, units=self.units, only=self.only,
            progress=self.progress,
        )  # fmt: skip

    def closer(self, seen: Seen, paths: Sequence[str]) -> Seen:
        """Where prompts break, read from their text: the kind and the section are in no block."""
        if seen.breaker is None or not paths or "-" in paths:
            return seen
        from ttftdoctor.prefixes.flow import prefix

        # The log was read without trouble; what goes wrong now only costs a detail.
        with suppress(TTFTDoctorError):
            report = prefix(
                *paths, format=self.format, columns=self.columns, units=self.units, only=self.only
            )
            found = max(report.found.breakers, key=lambda b: b.tokens_lost, default=None)
            if found is not None:
                return replace(seen, breaker=found)
        return seen

    def sketch(self, log: Log) -> tuple[Sketch, Seen, tuple[str, ...]]:
        # What is kept is English, whoever makes it; what is only said here is said anew.
        with speaking("en"):
            diagnosis, examined = study(log, "LOG", Settings())
            seen = seen_in(diagnosis, examined)
        warnings = tuple(dict.fromkeys(warnings_of(log, examined.evidence)))
        if isinstance(self.warm_up, bool):
            sketch = sketch_of(log, diagnosis, examined, warm_up=self.warm_up)
            return sketch, seen, warnings
        rows, aside = without_head(examined.rows, self.warm_up)
        sketch = sketch_of(log, diagnosis, replace(examined, rows=rows), warm_up=False)
        sketch = replace(sketch, facts=replace(sketch.facts, warm_up=aside))
        return sketch, seen, warnings


def without_head(rows: Rows, seconds: float) -> tuple[Rows, int]:
    """The rows with nothing measured in the first seconds of the log, and how many that are.

    They stay where they are: what they sent and what they left in a cache is part of what comes
    after them.
    """
    first = np.nanmin(rows.start, initial=np.inf) if rows.order_known else np.inf
    early = rows.start < first + seconds
    ttft, e2e, queue, cached = (
        np.where(early, np.nan, column) for column in (rows.ttft, rows.e2e, rows.queue, rows.cached)
    )
    kept = replace(rows, ttft=ttft, e2e=e2e, queue=queue, cached=cached)
    return kept, int((early & rows.measured).sum())


def _files(path: str) -> list[str]:
    """The files that a glob stands for; anything else stands for itself, a folder for one run."""
    return expand([path]) if glob.has_magic(path) and not Path(path).exists() else [path]


def _baseline_at(path: str) -> Baseline | None:
    """The baseline in a file, or at an address that ends as one does; None where a log is."""
    if not is_address(path):
        return read_baseline(Path(path)) if is_baseline(Path(path)) else None
    if not label_of(path).partition("?")[0].endswith(".json"):
        return None
    with open_address(path) as stream:
        head = stream.read(_HEAD_BYTES)
        if not _begins(head):
            return None
        return _baseline_in(head + stream.read(_MOST_BYTES), shown(path))


def _begins(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and _MARK in head


def is_baseline(path: Path) -> bool:
    """Whether a file says of itself, near its head, that it is a baseline."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return _begins(head)


def read_baseline(path: Path) -> Baseline:
    """A baseline file.

    Raises
    ------
    InputError
        If it cannot be read, or is damaged or of another version.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(mark("cannot be read"), where=str(path), why=error.strerror) from None
    return _baseline_in(data, str(path))


def _baseline_in(data: bytes, where: str) -> Baseline:
    if len(data) > _MOST_BYTES:
        raise InputError(mark("this baseline is too large to be one"), where=where)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(mark("this baseline is no UTF-8 text"), where=where) from None
    return Baseline.from_text(text, where)

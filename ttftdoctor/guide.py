"""What the user, a mapping file and a time zone say of a log, put together for whoever reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ttftdoctor import catalog
from ttftdoctor.errors import UsageError
from ttftdoctor.language import listed, tr, tr_n
from ttftdoctor.mapping import find_mapping
from ttftdoctor.mapping.manner import manner
from ttftdoctor.mapping.proposal import MOST_UNUSED, Unused
from ttftdoctor.readers import Clock, Options, Reader
from ttftdoctor.sources import Head
from ttftdoctor.units import count

#: Places of a doubt that are kept.
FIRST = 10
#: Of each doubt about rows how often it held, and where first: index of the input, line.
Doubts = Mapping[str, tuple[int, tuple[tuple[int, int], ...]]]


@dataclass(frozen=True)
class Beside:
    """What is known of a log beside its rows, for ``inspect``.

    ``unused`` are fields that no column uses; ``sample`` are the first records of a flat log, of
    which a mapping file can be made; ``doubts`` counts the rows of which a value was not used
    (``table.DOUBTS``), out of ``rows`` that were used when the log was read.
    """

    unused: tuple[Unused, ...] = ()
    sample: Head | None = field(default=None, repr=False)
    doubts: Doubts = field(default_factory=dict)
    rows: int = 0


def together(parts: Iterable[Beside]) -> Beside:
    """The same of several logs that were read as one."""
    unused: dict[str, Unused] = {}
    sample: Head | None = None
    doubts: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}
    rows = 0
    for part in parts:
        rows += part.rows
        for one in part.unused:
            unused.setdefault(one.name, one)
        sample = sample or part.sample
        for name, (n, places) in part.doubts.items():
            before, first = doubts.get(name, (0, ()))
            doubts[name] = (before + n, (*first, *places)[:FIRST])
    return Beside(tuple(unused.values()), sample, doubts, rows)


def in_manner(options: Options) -> Options:
    """The options with the mapping file and the time zone that hold for all logs of this run."""
    said = manner()
    options = replace(options, mapping=options.mapping or said.mapping)
    if said.timezone is not None:
        return replace(options, timezone=said.timezone, zoned="--timezone")
    return options


def for_path(path: str, format: str | None, options: Options) -> Options:
    """The options with the mapping that may hold for this file, and the zone it names."""
    mapping = options.mapping
    if mapping is not None and mapping.asked and format not in (None, "flat"):
        raise UsageError(f"--mapping is for flat logs, not for {format}", help="leave one out")
    if mapping is None and format in (None, "flat"):
        mapping = find_mapping(path)
    if mapping is None:
        return options
    options = replace(options, mapping=mapping)
    if mapping.timezone is not None and options.zoned is None:
        options = replace(options, timezone=mapping.timezone, zoned=mapping.name)
    return options


def is_table(format: str | None, options: Options) -> bool:
    """Whether text that could be CSV is meant to be."""
    asked = options.mapping is not None and options.mapping.asked
    return format == "flat" or bool(options.columns) or asked


def format_of(head: Head, format: str | None, options: Options) -> str | None:
    """The format by which a log is to be read; None where it is to be recognised."""
    if format is not None:
        return format
    mapping = options.mapping
    # Columns named by the user: whatever it is, it is read by them.
    if options.columns or (mapping is not None and mapping.asked):
        return "flat"
    if mapping is None or not _fits(head, options):
        return None
    # A mapping that was only found must not take a log from the reader that knows it.
    return None if any(not reader.generic for reader, _ in catalog.claimants(head)) else "flat"


def _fits(head: Head, options: Options) -> bool:
    records = [*head.records, *(record for inner in head.inner.values() for record in inner)]
    return options.mapping is not None and options.mapping.fits(records)


def for_part(reader: Reader, head: Head, evidence: str, options: Options) -> tuple[Options, str]:
    """The options for one reader, and by what evidence it reads.

    A mapping that was found is for flat logs that have fields of it.
    """
    options = replace(options, clock=Clock())
    mapping = options.mapping
    if mapping is not None and not mapping.asked and not (reader.generic and _fits(head, options)):
        if options.zoned == mapping.name:
            options = replace(options, timezone="UTC", zoned=None)
        options, mapping = replace(options, mapping=None), None
    by = ["--map"] if options.columns and reader.generic else []
    by += [mapping.name] if mapping is not None and reader.generic else []
    if not by:
        return options, evidence
    return options, tr("its columns are mapped by {names}", names=listed(by))


#: Columns without which most causes cannot be judged.
IMPORTANT = (
    "session_id", "start", "input_tokens", "cached_tokens", "output_tokens", "ttft_us", "e2e_us",
)  # fmt: skip
#: Unused fields that are named in a sentence.
NAMED = 4


def unused_note(beside: Beside, missing: Iterable[str]) -> list[str]:
    """One sentence on the fields of a flat log that no column uses, where important ones lack."""
    wanted = set(missing) & set(IMPORTANT)
    if beside.sample is None or not wanted or not beside.unused:
        return []
    fields = sorted(beside.unused, key=lambda one: one.guess not in wanted)
    named = tr(", ").join(
        tr("{field} (looks like {column})", field=one.name[:40], column=one.guess)
        if one.guess in wanted
        else one.name[:40]
        for one in fields[:NAMED]
    )
    n = len(beside.unused)
    if n >= MOST_UNUSED:
        unused = tr("{n} or more fields of the log are not used", n=n)
    else:
        unused = tr_n(
            "{n} field of the log is not used", "{n} fields of the log are not used", n, n=n
        )
    said = (
        tr("{unused}: {named}", unused=unused, named=named)
        if n <= NAMED
        else tr("{unused}, e.g. {named}", unused=unused, named=named)
    )
    return [tr("{unused}; ttftdoctor inspect lists them and proposes a mapping", unused=said)]


def zone_notes(options: Options) -> list[str]:
    """Which time zone the stamps were read in, where one was named."""
    if options.zoned is None:
        return []
    if not options.clock.read:
        zone = f"{options.timezone} ({options.zoned})"
        return [tr("no stamp had to be read in {zone}: none lacks a zone", zone=zone)]
    return [
        tr("stamps without a zone were read in {zone} ({by})",
           zone=options.timezone, by=options.zoned)
    ]  # fmt: skip


def clock_warnings(options: Options) -> list[str]:
    """What the days leave open on which the clocks are changed."""
    out = []
    if options.clock.twice:
        out.append(
            tr(
                "{n} stamps lie in the hour that the clocks of {zone} show twice; each was taken "
                "for the first of the two",
                n=count(options.clock.twice), zone=options.timezone,
            )
        )  # fmt: skip
    if options.clock.never:
        out.append(
            tr(
                "{n} stamps lie in the hour that the clocks of {zone} leave out; they were not "
                "used: is it the right zone?",
                n=count(options.clock.never), zone=options.timezone,
            )
        )  # fmt: skip
    return out

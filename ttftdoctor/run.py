"""The whole flow, spelled once: read, then study.

What comes after reading is loaded when it is needed, so that reading begins at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ttftdoctor.engines import wanted
from ttftdoctor.errors import TTFTDoctorError, UsageError
from ttftdoctor.intake import Log, keep, read_log
from ttftdoctor.mapping.manner import manner, reading_as
from ttftdoctor.readers import Options
from ttftdoctor.sources.addresses import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ttftdoctor.choose import Only
    from ttftdoctor.diagnosis import Diagnosis
    from ttftdoctor.engines import Engine, Taken
    from ttftdoctor.hardware import Machine
    from ttftdoctor.prices import Pricing


def read(
    *paths: str,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
    mapping: str | Path | None = None,
    timezone: str | None = None,
) -> Log:
    """Read logs into one request table.

    Parameters
    ----------
    paths
        Files, globs, folders, or ``-``; addresses of object stores, web servers and databases.
    format
        Name of a format; recognised from the first records by default.
    columns, units
        Canonical column to field, and field to unit, for logs with names of their own.
    only
        Which rows are wanted; all by default.
    mapping
        A mapping file: fields, units and stamps of a flat log (see :mod:`ttftdoctor.mapping`).
    timezone
        IANA name of the zone of stamps that carry none; UTC by default.
    """
    options = Options(columns=columns or {}, units=units or {})
    with reading_as(mapping=None if mapping is None else str(mapping), timezone=timezone):
        return read_by(options, *paths, format=format, only=only, progress=progress)


def read_by(
    options: Options,
    *paths: str | Path,
    format: str | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Log:
    """The same, by all that a user may say about a log."""
    if only is not None and only.query is not None:
        options = replace(options, query=only.query)
    log = read_log([str(p) for p in paths], format=format, options=options, progress=progress)
    return wanted(log, only)


def one_log(
    *logs: str | Path | Log | DataFrame,
    format: str | None,
    columns: dict[str, str] | None,
    units: dict[str, str] | None,
    progress: Callable[[str, int], None] | None,
    only: Only | None = None,
) -> Log:
    """The log that was read already, or what is read from the paths; what is wanted of it."""
    if len(logs) == 1 and isinstance(logs[0], Log):
        return wanted(logs[0], only)
    paths = [str(path) for path in logs if not isinstance(path, Log)]
    if len(paths) != len(logs):
        raise TTFTDoctorError("give paths, or one log that was read already")
    return read(*paths, format=format, columns=columns, units=units, only=only, progress=progress)


def diagnose(
    *logs: str | Log | DataFrame,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    compact_to: int = 8000,
    slo_ttft_s: float | None = None,
    machine: Machine | None = None,
    pricing: Pricing | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
    draw: bool = True,
    save_state: str | None = None,
    memory: int | None = None,
    engine: Engine = "local",
    spark_master: str | None = None,
) -> Diagnosis:
    """Say why the time to first token is what it is.

    Parameters
    ----------
    logs
        Paths, or one :class:`Log` from :func:`read`, or one DataFrame of Spark.
    compact_to
        Length in tokens that the compaction remedy cuts histories to.
    slo_ttft_s
        Target for TTFT in seconds; adds attainment and goodput.
    machine
        Hardware and model size; adds what they allow beside what was measured.
    pricing
        List prices of tokens, or the price of a GPU-hour; adds what the waste costs and what each
        remedy saves.
    only
        Which rows are diagnosed; all by default.
    draw
        Whether the tables of the HTML page's charts are made; without them it has none.
    memory
        Bytes that may be taken; of a log that is larger a part is looked at, and counts, tables and
        tokens are of all of it. Half of what the machine has by default.
    engine, spark_master
        ``spark`` reads on a cluster: the one of this address, or the session that there is.
    save_state
        A file in which the rows are kept, which can be given as a log from then on.

    Examples
    --------
    >>> diagnose("sample_logs/peak_hour.jsonl").verdict.primary_cause
    'repeated_prefix_no_reuse'
    """
    if any(hasattr(log, "mapInArrow") for log in logs):
        engine = "spark"
    taken = _taken(
        logs, format, columns, units, progress, only, memory, engine, spark_master, save_state
    )
    log = taken.log
    if save_state is not None and taken.whole is None:
        keep(log, save_state)
    from ttftdoctor.experiment import arguments
    from ttftdoctor.remedies import Settings
    from ttftdoctor.study import study

    given = [shown(str(path)) for path in logs if isinstance(path, (str, Path))]
    named = arguments(
        given or [record.path for record in log.inputs], format, columns, units,
        (*manner().arguments(), *(() if only is None else only.arguments())),
    )  # fmt: skip
    return study(
        log, named, Settings(compact_to), slo_ttft_s, machine, pricing,
        draw=draw, whole=taken.whole, again=True,
    )[0]  # fmt: skip


def _taken(
    logs: tuple[str | Log | DataFrame, ...],
    format: str | None,
    columns: dict[str, str] | None,
    units: dict[str, str] | None,
    progress: Callable[[str, int], None] | None,
    only: Only | None,
    memory: int | None,
    engine: Engine,
    spark_master: str | None,
    save_state: str | None,
) -> Taken:
    """The log that was read already, or what is read of the paths as far as memory allows.

    Rows of which only a part is held in the end are kept in ``save_state`` on the way.
    """
    from ttftdoctor.engines import Asked, Taken

    if any(isinstance(path, Log) for path in logs):
        return Taken(
            one_log(
                *logs, format=format, columns=columns, units=units, progress=progress, only=only
            )
        )
    from ttftdoctor.extracts import Budget

    options = Options(columns=columns or {}, units=units or {})
    if only is not None and only.query is not None:
        options = replace(options, query=only.query)
    budget = None if memory is None else Budget(memory)
    settings = {"master": spark_master}
    asked = Asked(logs, format, options, budget, progress, settings)
    if engine == "local":
        from ttftdoctor.engines import local

        return local.take(asked, only, save_state)
    from ttftdoctor.engines import spark

    taken = spark.take(asked, only)
    if taken.whole is not None and save_state is not None:
        raise UsageError(
            "the log is larger than the memory given: only --engine local saves a state of it",
            help="give more --memory",
        )
    return taken

"""From paths to the prefix report, spelled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ttftdoctor.choose import Only
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.hardware import Machine
from ttftdoctor.intake import Log
from ttftdoctor.language import mark
from ttftdoctor.prefixes.document import PrefixReport
from ttftdoctor.prefixes.kv import kv_shape
from ttftdoctor.prefixes.look import look
from ttftdoctor.prefixes.rungs import POLICIES, Asked
from ttftdoctor.prompts import load_tokenizer
from ttftdoctor.readers import Options
from ttftdoctor.run import one_log, read_by
from ttftdoctor.version import tool_version

if TYPE_CHECKING:
    from ttftdoctor.prices import Pricing


def prefix(
    *logs: str | Path | Log,
    ttl_s: float | None = None,
    cache_tokens: int | None = None,
    cache_gb: float | None = None,
    kv: str | None = None,
    replicas: int | None = None,
    policy: str | None = None,
    block_tokens: int | None = None,
    least_tokens: int | None = None,
    ms_per_1k_tokens: float | None = None,
    machine: Machine | None = None,
    pricing: Pricing | None = None,
    show_text: bool = False,
    top: int = 10,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    tokenizer: str | None = None,
    metrics: str | Path | None = None,
    metrics_before: str | Path | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> PrefixReport:
    """Say what the prompts of a log share, and where that is lost, rung by rung.

    Parameters
    ----------
    logs
        Paths, or one :class:`Log` from :func:`ttftdoctor.read`.
    ttl_s
        Seconds after its last use at which a cached block is let go.
    cache_tokens, cache_gb, kv
        Size of the cache of one replica in tokens, or in GB for the KV shape ``kv`` (a name, or
        LAYERSxKV_HEADSxHEAD_SIZE[xBYTES]).
    replicas, policy
        How many replicas there are and how one is chosen, where the log names none.
    block_tokens, least_tokens
        A hit is a multiple of the former and at least the latter.
    ms_per_1k_tokens, machine
        What 1,000 computed tokens cost, or the hardware, where the log has no TTFT.
    show_text
        Quote the text around a place where prompts break.
    tokenizer
        A local ``tokenizer.json``, to cut text into blocks exactly.
    metrics, metrics_before
        Saved ``/metrics`` pages of the engine from after the log and from before it: what the
        engine counted is held beside the ladder.
    only
        Which rows are looked at; all by default. What came before them is in no cache.

    Raises
    ------
    UsageError
        If a limit makes no sense.

    Examples
    --------
    >>> report = prefix("sample_logs/mooncake.jsonl")
    >>> report.found.ladder.rungs[0].id
    'ideal'
    """
    shape = None if kv is None else kv_shape(kv)
    for name, value in (
        ("--ttl", ttl_s), ("--cache-tokens", cache_tokens), ("--cache-gb", cache_gb),
        ("--replicas", replicas),
        ("--block-tokens", block_tokens), ("--ms-per-1k-tokens", ms_per_1k_tokens),
    ):  # fmt: skip
        if value is not None and not 0 < value < 1e15:
            raise UsageError(f"{name} must be above zero")
    if cache_gb is not None:
        if shape is None:
            raise UsageError("--cache-gb needs --kv-shape: how much is a token?")
        cache_tokens = max(int(cache_gb * 1e9 / shape.bytes_per_token), 1)
    if policy is not None and replicas is None:
        raise UsageError("--policy needs --replicas: how many are there to choose from?")
    if replicas is not None and replicas > 4096:
        raise UsageError("--replicas must be at most 4096")
    known = tuple(POLICIES)
    if policy is not None and policy not in known:
        raise UsageError(f"--policy: there is no {policy!r}", available=", ".join(known))
    basis = mark("given")
    if ms_per_1k_tokens is None and machine is not None:
        from ttftdoctor.hardware import roofline

        low, high = roofline(machine, 2000.0, 1.0).ms_per_1k_tokens_usual
        ms_per_1k_tokens = (low + high) / 2
        basis = mark("what the hardware allows at 40 to 50 % of its arithmetic")
    log = _with_text(
        *logs, format=format, columns=columns, units=units, tokenizer=tokenizer, only=only,
        progress=progress,
    )  # fmt: skip
    asked = Asked(
        ttl_s, cache_tokens, replicas, policy, block_tokens, least_tokens, shape, ms_per_1k_tokens,
        basis, show_text, top,
    )  # fmt: skip
    report = prefix_log(log, asked, pricing)
    if metrics is None:
        return report
    return _beside_page(report, metrics, metrics_before)


def _with_text(
    *logs: str | Path | Log,
    format: str | None,
    columns: dict[str, str] | None,
    units: dict[str, str] | None,
    tokenizer: str | None,
    only: Only | None,
    progress: Callable[[str, int], None] | None,
) -> Log:
    """The log, and the text of its prompts beside it where it has any."""
    if any(isinstance(log, Log) for log in logs):
        return one_log(
            *logs, format=format, columns=columns, units=units, progress=progress, only=only
        )
    if tokenizer is not None:
        load_tokenizer(tokenizer)  # a wrong path is told even where there is no text
    options = Options(columns=columns or {}, units=units or {}, text=True, tokenizer=tokenizer)
    paths = [str(path) for path in logs]
    return read_by(options, *paths, format=format, only=only, progress=progress)


def _beside_page(
    report: PrefixReport, after: str | Path, before: str | Path | None
) -> PrefixReport:
    """The report with the engine's own counters held beside its ladder."""
    from ttftdoctor.prefixes.metrics import counters, counters_between
    from ttftdoctor.prefixes.reconcile import beside_metrics

    found = report.found
    if found.ladder is None:
        raise UsageError("--metrics has nothing to stand beside: the log tells nothing of reuse")
    page = counters(_page(after))
    if before is not None:
        page = counters_between(counters(_page(before)), page)
    model = [(rung.id, float(rung.hit_tokens)) for rung in found.ladder.rungs]
    beside = beside_metrics(page, model, found.input_tokens)
    return replace(report, found=replace(found, reconciled=(*found.reconciled, beside)))


def _page(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError("cannot be read", where=str(path), why=error.strerror) from None


def prefix_log(log: Log, asked: Asked, pricing: Pricing | None = None) -> PrefixReport:
    """The same for a log that was read."""
    from ttftdoctor.measure.rows import prepare

    lines = till = None
    if log.requests["ttft_us"].null_count() < log.requests.height:
        from ttftdoctor.examine import examine

        examined = examine(log)
        rows, lines = examined.rows, examined.lines
    else:
        rows = prepare(log.requests)
    if pricing is not None:
        from ttftdoctor.prices import till_of

        till = till_of(rows, pricing)
    found = look(log, rows, asked, lines, till)
    warnings = (*log.warnings, *(till.warnings if till else ()))
    return PrefixReport(tool_version(), log.inputs, found, warnings)

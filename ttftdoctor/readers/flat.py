"""Flat logs: one record a request under the usual names, as JSON lines, an array, CSV or Parquet.

What writes them: load-test clients, gateways with a log format of their own, exports from a
warehouse. Names are matched without regard to case and separators (``usage.prompt_tokens``,
``promptTokens``); a unit at the end of a name (``ttft_ms``) decides the unit. Where a duration
carries no unit, the units under which first token, end and decode rate all make sense are worked
out; if more than one is left, the user is asked. Names that nobody knows are given with ``--map``
or in a mapping file (:mod:`ttftdoctor.mapping`).

What such a log cannot tell is whatever it has no column for; ``inspect`` names it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

import polars as pl

from ttftdoctor.averages import counting_field
from ttftdoctor.errors import AskUser, InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.mapping import STAMPS, MappingFile, column_named, names, pick
from ttftdoctor.mapping.fields import Place, columns_of, number_of, places
from ttftdoctor.prompts import PARTS_NAMED, Prompts, find
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import Threads
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import COLUMNS, Field
from ttftdoctor.units import UNIT_WORDS, US_PER

_DURATIONS = ("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "load_us")

#: Canonical column (or a helper starting with ``_``) to the names it goes by, best first.
ALIASES: dict[str, tuple[str, ...]] = {
    "request_id": ("request_id", "req_id", "id", "req", "rid", "uuid", "x_request_id"),
    "session_id": (
        "session_id", "session", "conversation_id", "conversation", "chat_id", "chat",
        "thread_id", "thread", "dialog_id", "sess_id", "conv_id", "session_key",
    ),
    "_user": ("user_id", "user"),
    "_answer": ("response_id", "answer_id"),
    "_previous": ("previous_response_id", "prev_response_id", "parent_response_id"),
    "turn": (
        "turn", "turn_index", "turn_id", "turn_number", "question_id", "round", "chat_round",
        "turn_idx", "request_idx",
    ),
    "_messages": ("input_num_turns", "num_messages", "n_messages"),
    "start": (
        "start", "started_at", "start_time", "request_start", "request_start_time",
        "arrival_time", "arrival", "arrived_at", "sent_at", "launch_time", "request_time",
        "start_time_unix", "start_ts", "request_ts", "created_at", "timestamp", "ts", "time",
        "t", "date", "datetime", "record_time", "@timestamp",
    ),
    "_end": ("end", "end_time", "finish_time", "finished_at", "completed_at", "ended_at",
             "request_complete_time", "end_ts", "end_time_unix"),
    "_first": ("first_token_at", "first_token_ts", "first_token_timestamp", "completion_start_time",
               "prefill_complete_time"),
    "model": ("model", "served_model", "model_name", "response_model", "model_id",
              "requested_model", "request_model"),
    "replica": ("replica", "replica_id", "server", "server_id", "instance", "instance_id", "pod",
                "target_pod", "upstream_addr", "upstream_host", "engine_id", "node", "backend_id",
                "gpu_id", "worker", "worker_id", "pod_name", "node_name", "instance_name",
                "replica_name"),
    "tenant": ("tenant", "tenant_id", "team", "team_id", "org", "org_id", "organization",
               "customer", "customer_id", "account", "account_id", "project", "project_id"),
    "route": ("route", "path", "endpoint", "url_path", "api", "gateway", "via", "provider",
              "region", "zone", "availability_zone", "datacenter", "cluster"),
    "version": ("version", "build", "release", "engine_version", "revision", "deployment",
                "image", "image_tag", "commit"),
    "input_tokens": (
        "input_tokens", "prompt_tokens", "total_input_tokens", "input_total", "prompt_n",
        "in_tok", "in_tokens", "tokens_in", "input_len", "input_length", "in_len",
        "number_input_tokens", "num_input_tokens", "input_num_tokens", "num_prompt_tokens",
        "input_toks", "context_tokens", "num_prefill_tokens", "prompt_token_count",
        "input_token_count", "prompt_len", "prompt_length", "isl", "request_tokens",
        "context_size",
    ),
    "cached_tokens": (
        "cached_tokens", "cache_read_input_tokens", "cache_read_tokens", "cached_input_tokens",
        "cached_prompt_tokens", "prompt_cached_tokens", "num_cached_tokens", "cache_hit_tokens",
        "cached_token_count", "prompt_tokens_details_cached_tokens", "cached_content_token_count",
        "cache_read", "prefix_cached_tokens", "cached_tok", "tokens_cached", "cache_n",
    ),
    "cache_write_tokens": (
        "cache_creation_input_tokens", "cache_write_tokens", "cache_creation_tokens",
        "cache_write_input_tokens",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "generated_tokens", "generation_tokens",
        "predicted_n", "out_tok", "out_tokens", "tokens_out", "output_len", "output_length",
        "out_len", "number_output_tokens", "num_output_tokens", "output_num_tokens",
        "output_toks", "output_tokens_actual", "num_decode_tokens", "completion_token_count",
        "output_token_count", "num_generated_tokens", "osl", "response_tokens",
    ),
    "reasoning_tokens": ("reasoning_tokens", "thinking_tokens", "num_reasoning_tokens",
                         "reasoning_output_tokens", "tokens_reasoning"),
    "ttft_us": (
        "ttft", "time_to_first_token", "first_token_latency", "time_to_first_chunk",
        "first_token", "first_token_time", "first_token_duration", "first_chunk_time",
        "first_chunk_latency", "llm_first_token_duration", "client_ttft",
        "prompt_eval_latency", "tt_first_token",
    ),
    "e2e_us": (
        "e2e", "e2e_latency", "end_to_end_latency", "latency", "total_latency", "duration",
        "total_duration", "total_time", "total", "wall", "wall_time", "request_latency",
        "request_duration", "elapsed", "elapsed_time", "response_time", "total_chunk_time",
        "ttlt", "time_to_last_token", "e2el",
    ),
    "queue_us": ("queue_time", "queue", "queued", "queue_wait", "time_in_queue", "waiting_time",
                 "queue_duration", "wait_time", "queue_latency", "server_queue_time"),
    "prefill_us": ("prefill_time", "prefill", "prefill_duration", "engine_prompt", "prompt_eval",
                   "prompt_time", "prompt_eval_duration", "prefill_latency"),
    "decode_us": ("decode_time", "decode", "decode_duration", "generation_time",
                  "engine_predicted", "eval_duration", "predicted"),
    "load_us": ("load_duration", "load_time", "model_load_time", "load"),
    "_tpot": ("tpot", "time_per_output_token", "tpot_mean"),
    "_tps": ("decode_tps", "decode_tokens_per_second", "output_tokens_per_second",
             "tokens_per_second_decode"),
    "attempts": ("attempts", "attempt", "num_attempts", "tries", "attempt_count"),
    "_retries": ("retries", "retry_count", "resend_count", "num_retries"),
    "status": ("status", "status_code", "http_status", "response_status", "http",
               "response_code", "outcome", "state"),
    "_success": ("success", "succeeded", "is_success", "ok"),
    "_error": ("error", "error_message", "error_msg", "error_text", "exception"),
    "_error_code": ("error_code", "errcode"),
    "streamed": ("stream", "streamed", "streaming", "is_streaming", "is_stream"),
    "vantage": ("vantage",),
    "prefix_blocks": ("prefix_blocks", "block_hashes", "hash_ids", "block_ids"),
    "block_tokens": ("block_tokens", "block_size", "hash_block_size"),
}  # fmt: skip

#: Columns that are read as numbers where they hold nothing else.
_NUMERIC = (
    *STAMPS, *_DURATIONS, "turn", "_messages", "input_tokens", "cached_tokens",
    "cache_write_tokens", "output_tokens", "reasoning_tokens", "_tpot", "_tps", "attempts",
    "_retries", "block_tokens",
)  # fmt: skip

#: Stamps of an engine's monotonic clock, which must never be subtracted from wall-clock ones.
_ENGINE_STAMPS = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")

#: Fields that are looked at beside those of the columns.
_READ_BESIDE = ("trace_id", "approx_cached_percent", "out_len_expected", "cache_hit_blocks")

_STRIP_PREFIX = re.compile(
    r"^(gen_ai_usage_|gen_ai_response_|gen_ai_server_|gen_ai_request_|gen_ai_|llm_usage_|usage_|"
    r"metrics_|timing_|timings_|response_|engine_)"
)


def normal(name: str) -> tuple[str, str | None]:
    """A name without case and separators, and the unit at its end, if there is one.

    >>> normal("firstTokenLatency_ms")
    ('first_token_latency', 'ms')
    >>> normal("TTFT")
    ('ttft', None)
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    snake = re.sub(r"[^0-9a-zA-Zµμ@]+", "_", snake).strip("_").lower()
    parts = snake.split("_")
    if len(parts) > 1 and parts[-1] in UNIT_WORDS and parts[-1] not in ("m", "h", "min"):
        return "_".join(parts[:-1]), UNIT_WORDS[parts[-1]]
    return snake, None


#: Columns whose names hold for a field whatever that of its own inside them: the ``id`` of a
#: ``conversation`` is none of the request.
_WHOSE = ("session_id", "turn", "model", "replica", "tenant", "route", "version", "_user")
_OF_OTHERS = {alias for column in _WHOSE for alias in ALIASES[column]}


def _match(
    records: Iterable[Mapping[str, Any]], places: list[Place]
) -> dict[str, tuple[Place, str | None]]:
    """Canonical column to the best place for it and the unit its name tells.

    A field of nothing but objects is no number and no moment, unless it has the very name of the
    column: then its rows are rejected, and say why.
    """
    objects = _objects(records)
    values = _by_name([p for p in places if p.path is not None or p.column not in objects])
    every = _by_name(places) if objects else values
    found = {}
    for canonical, aliases in ALIASES.items():
        for name in aliases:
            by_name = values if canonical in _NUMERIC and name != canonical else every
            if name not in by_name:
                continue
            place, unit = by_name[name]
            # Without a unit, a load is how busy a server is.
            if name == "load" and unit is None:
                continue
            nested = canonical == "request_id" and place.path is not None
            if nested and normal(place.label)[0] in _OF_OTHERS:
                continue
            found[canonical] = place, unit
            break
    return found


def _objects(records: Iterable[Mapping[str, Any]]) -> set[str]:
    """The top-level fields that hold objects, and nothing else."""
    objects: set[str] = set()
    others: set[str] = set()
    for record in records:
        for column, value in record.items():
            if isinstance(value, Mapping):
                objects.add(column)
            elif value is not None:
                others.add(column)
    return objects - others


def _by_name(places: list[Place]) -> dict[str, tuple[Place, str | None]]:
    """The best place for each name, and the unit that the name tells."""
    by_name: dict[str, tuple[Place, str | None]] = {}
    for place in places:
        name = place.column if place.path is None else place.path[2:].replace(".", "_")
        base, unit = normal(name)
        whole = normal(place.label)[0]
        for key in dict.fromkeys((whole, base, _STRIP_PREFIX.sub("", base))):
            known = by_name.get(key)
            if known is None or (place.path is None and known[0].path is not None):
                by_name[key] = (place, unit)
    return by_name


def _records(
    head: Head, labels: Iterable[str] = ()
) -> tuple[str | None, tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Which list of a document holds the requests, its records, and their columns.

    ``labels`` are fields that the user named: where there are any, the list that has most of them
    is taken.
    """
    if head.outer is None:
        return None, head.records, head.columns
    wanted = set(labels)
    if wanted:
        lists: dict[str | None, tuple[Mapping[str, Any], ...]] = {None: (head.outer,)}
        lists.update(head.inner)
        count = {
            key: len(wanted & {p.label for p in places(inner, columns_of(inner))})
            for key, inner in lists.items()
        }
        best_key = max(count, key=lambda key: (count[key], key is not None))
        if count[best_key]:
            return best_key, lists[best_key], columns_of(lists[best_key])
    # The outer document counts only by its own fields: a match deep inside is no record.
    best: tuple[int, str | None] = (_usable((), head.columns), None)
    for key, inner in head.inner.items():
        score = _usable(inner, columns_of(inner))
        if score > best[0]:
            best = (score, key)
    if best[1] is None:
        return None, head.records if best[0] else (), head.columns
    inner = head.inner[best[1]]
    return best[1], inner, columns_of(inner)


def _labels(options: Options) -> list[str]:
    """The fields that the user and the mapping file name."""
    named = list(options.columns.values())
    if options.mapping is not None:
        named += [label for labels in options.mapping.columns.values() for label in labels]
    return named


def _usable(records: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> int:
    found = _match(records, places(records, columns))
    has_ttft = "ttft_us" in found or ("_first" in found and "start" in found)
    prompted = "input_tokens" in found or (not has_ttft and find(tuple(records)) is not None)
    score = 2 * has_ttft + prompted + ("start" in found) + ("e2e_us" in found)
    return score if has_ttft or (prompted and score >= 2) else 0


def recognise(head: Head) -> str | None:
    """Claim any record with a first-token time, or with tokens or a prompt and a time."""
    if head.outer is not None and any(k.startswith("mean_ttft") for k in head.outer):
        return None
    _, records, columns = _records(head)
    if not _usable(records, columns):
        return None
    found = _match(records, places(records, columns))
    named = [
        tr("{field} is {column}", field=found[c][0].label, column=c.removesuffix("_us"))
        for c in ("ttft_us", "input_tokens", "start")
        if c in found
    ]
    return tr(", ").join(named) or tr("usual names")


def records_of(head: Head) -> tuple[str | None, tuple[Mapping[str, Any], ...]]:
    """The first records of a flat log, and the list of the document that holds them."""
    unwrap, records, _ = _records(head)
    return unwrap, records or head.records


def matched(records: Sequence[Mapping[str, Any]]) -> dict[str, Place]:
    """The place of each column (or helper) by the usual names alone."""
    return {
        column: place
        for column, (place, _) in _match(records, places(records, columns_of(records))).items()
    }


def units_of(head: Head, options: Options) -> dict[str, tuple[str, str, str]]:
    """Field, unit and why of each duration, as :func:`plan` would read it."""
    _, records, columns = _records(head, _labels(options))
    every = places(records, columns)
    found = _match(records, every)
    _apply_map(found, every, options, head)
    units = _decide_units(found, records, options, head)
    return {column: (found[column][0].label, unit.unit, unit.why) for column, unit in units.items()}


def plan(head: Head, options: Options) -> Plan:
    """Choose the place and unit of each canonical column.

    Raises
    ------
    AskUser
        If the unit of the first-token time cannot be decided.
    InputError
        If a field named with ``--map`` or ``--unit`` does not occur.
    """
    unwrap, records, columns = _records(head, _labels(options))
    every = places(records, columns)
    found = _match(records, every)
    told = _apply_map(found, every, options, head)
    _check_units(every, options, head)
    for canonical in _redundant(found, columns):
        if canonical not in told:
            found.pop(canonical, None)
    units = _decide_units(found, records, options, head)
    exclusive = _why_exclusive(found, records)
    engine = all(stamp in columns for stamp in _ENGINE_STAMPS)
    blocks = _has_blocks(found, records)
    schema: dict[str, Any] = {}
    for canonical, (place, _) in found.items():
        if canonical == "prefix_blocks":
            if blocks:
                # In a cell of CSV, a list is written as JSON.
                text = any(isinstance(place.of(r), str) for r in records)
                schema[place.column] = pl.String if text else pl.List(pl.UInt64)
        else:
            schema[place.column] = pl.String
    if engine:
        schema.update(dict.fromkeys(_ENGINE_STAMPS, pl.String))
    several = None
    if "start" in found and "ttft_us" in found:
        stamps_of = found["start"][0].of
        several = counting_field(records, [stamps_of(record) for record in records])
    if several is not None:
        schema.setdefault(several, pl.String)
    numbers = {c: t for c, t in _all_numbers(found, records).items() if c in schema}
    if head.shape is not Shape.JSON:
        numbers = {}
    if not blocks:
        found.pop("prefix_blocks", None)
    prompts = None
    where = find(records, {p: options.columns[p] for p in PARTS_NAMED if p in options.columns})
    if where is not None and (options.text or not blocks):
        prompts = Prompts(
            where, bytes_per_token=options.bytes_per_token, tokenizer=options.tokenizer,
            blocks=not blocks, parts=options.text,
        )  # fmt: skip
        for column in prompts.where.columns:
            schema.setdefault(column, pl.String)
            numbers.pop(column, None)
    form = options.mapping.time_format if options.mapping is not None else None
    stamps = _stamps(found, records, options)
    if form is not None:
        # Stamps in a format of their own are text, whatever they look like.
        numbers = {c: t for c, t in numbers.items() if c not in {p.column for p in stamps.texts}}
    builder = _Builder(
        found, units, exclusive, engine, columns, prompts, told, options.mapping, stamps, several
    )
    used = {place.label for place, _ in found.values()} | set(_READ_BESIDE)
    used |= set(_ENGINE_STAMPS) if engine else set()
    used |= set() if several is None else {several}
    used |= set(prompts.where.columns) if prompts is not None else set()
    return Plan(
        schema=schema, convert=builder.convert, unwrap=unwrap, numbers=numbers,
        used=frozenset(used),
    )  # fmt: skip


@dataclass(frozen=True)
class _Stamps:
    """How the moments of a log are read: a unit by column, and in words; ``texts`` by a format."""

    units: Mapping[str, str | None]
    words: Mapping[str, str]
    texts: frozenset[Place] = frozenset()


#: By size: the epoch, in which a number of that many digits before the point is a date of our time.
_EPOCHS = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"), (1e8, "s"))


def _stamps(
    found: Mapping[str, tuple[Place, str | None]],
    records: tuple[Mapping[str, Any], ...],
    options: Options,
) -> _Stamps:
    units: dict[str, str | None] = {}
    words: dict[str, str] = {}
    texts: set[Place] = set()
    form = options.mapping.time_format if options.mapping is not None else None
    for canonical in STAMPS:
        if canonical not in found:
            continue
        place, named = found[canonical]
        told = _unit_told(canonical, place.label, options)
        # "_ms" at the end of a stamp may be epoch or monotonic: either way milliseconds.
        unit = units[canonical] = told[0] if told is not None else named
        values = [v for v in (place.of(record) for record in records) if v is not None]
        numbers = [n for n in map(number_of, values) if n is not None]
        if form is not None and (not numbers or "%s" not in form) and unit is None:
            texts.add(place)
            zone = "" if "%z" in form or "%:z" in form else f", {options.timezone}"
            words[canonical] = f"{form}{zone}"
        elif values and len(numbers) == len(values):
            size = median(map(abs, numbers))
            unit = unit or next((u for least, u in _EPOCHS if size >= least), "s")
            dated = size * US_PER[unit] > 1e14
            text = mark("{unit} since 1970") if dated else mark("{unit}, no date")
            words[canonical] = tr(text, unit=unit)
        elif values:
            own = re.compile(r"(?:Z|UTC|[+-]\d\d(?::?\d\d)?)\s*$")
            zoned = [
                value.tzinfo is not None if isinstance(value, datetime)
                else own.search(str(value)) is not None
                for value in values
            ]  # fmt: skip
            if all(zoned):
                words[canonical] = tr("date, its own zone")
            else:
                words[canonical] = tr("date, no zone: read as {zone}", zone=options.timezone)
    return _Stamps(units, words, frozenset(texts))


def _apply_map(
    found: dict[str, tuple[Place, str | None]],
    every: list[Place],
    options: Options,
    head: Head,
) -> dict[str, str]:
    """Put what the user and the mapping file say in place of usual names; who said so, by column.

    A field that was named for one column is no other column by its name.
    """
    by_label = {p.label: p for p in every}
    told: dict[str, str] = {}
    new: dict[str, tuple[Place, str | None]] = {}
    for canonical, label in options.columns.items():
        name = column_named(canonical)
        if name is None:
            raise InputError(f"--map names no column {canonical!r}", available=", ".join(names()))
        if name in PARTS_NAMED:
            if label.split(".")[0] not in {p.column for p in every}:
                raise _no_field(label, by_label, head)
            continue
        if label not in by_label:
            raise _no_field(label, by_label, head)
        new[name], told[name] = (by_label[label], normal(label)[1]), tr("mapped with --map")
    mapping = options.mapping
    for name, labels in (mapping.columns if mapping is not None else {}).items():
        if mapping is None or name in PARTS_NAMED or name in new:
            continue
        chosen = pick(labels, by_label)
        if chosen is not None:
            new[name] = (by_label[chosen], normal(chosen)[1])
            told[name] = tr("mapped by {place}", place=mapping.place(name))
        elif mapping.asked and name not in mapping.optional:
            raise InputError(
                f"the log has no field {' or '.join(map(repr, labels))}",
                where=f"{head.path} by {mapping.where('map', mapping.keys.get(name, name))}",
                available=", ".join(list(by_label)[:30]),
                help="name another field, or let the log do without: "
                f'optional = ["{mapping.keys.get(name, name)}"] at the top of the mapping',
            )
    taken = {place for place, _ in new.values()}
    for name in [name for name, (place, _) in found.items() if place in taken]:
        del found[name]
    found.update(new)
    # A moment that was named makes the duration; a field that has its name by chance does not.
    for moment, duration in (("_first", "ttft_us"), ("_end", "e2e_us")):
        if moment in told and duration not in told:
            found.pop(duration, None)
    return told


def _no_field(label: str, known: Iterable[str], head: Head) -> InputError:
    return InputError(
        f"--map: the log has no field {label!r}", where=head.path,
        available=", ".join(list(known)[:30]),
    )  # fmt: skip


def _check_units(every: list[Place], options: Options, head: Head) -> None:
    labels = [p.label for p in every]
    known = {*labels, *COLUMNS, *(c.removesuffix("_us") for c in COLUMNS)}
    for label in options.units:
        if label not in known and column_named(label) is None:
            raise InputError(
                f"--unit: the log has no field {label!r}",
                where=head.path,
                available=", ".join(labels[:30]),
            )


def _unit_told(canonical: str, label: str, options: Options) -> tuple[str, str] | None:
    """The unit of a column that the user or the mapping file names, and who did."""
    keys = (label, canonical, canonical.removesuffix("_us"), canonical.removeprefix("_"))
    for key in keys:
        if key in options.units:
            return UNIT_WORDS[options.units[key]], tr("given with --unit")
    mapping = options.mapping
    for key in keys if mapping is not None else ():
        if mapping is not None and key in mapping.units:
            return mapping.units[key], tr("given in {file}", file=mapping.name)
    return None


def _redundant(found: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    drop = []
    if "out_len_expected" in columns:  # a replay client that counts characters, not tokens
        drop.append("output_tokens")
    if "session_id" in found or "turn" not in found:
        drop.append("_user")
    names = set(columns)
    if "cache_hit_blocks" in names:  # the client's own model of a cache, not a measurement
        drop.append("cached_tokens")
    return drop


def _numbers(records: Iterable[Mapping[str, Any]], place: Place | None) -> list[float | None]:
    return [number_of(place.of(record)) if place is not None else None for record in records]


def _all_numbers(
    found: Mapping[str, tuple[Place, str | None]], records: tuple[Mapping[str, Any], ...]
) -> dict[str, Any]:
    """Fields of numeric columns that hold nothing but numbers, with the type to read them as."""
    out: dict[str, Any] = {}
    for canonical, (place, _) in found.items():
        if place.path is not None or canonical not in _NUMERIC:
            continue
        kinds = {type(place.of(record)) for record in records} - {type(None)}
        if kinds and kinds <= {int, float}:
            # Stamps in nanoseconds are longer than a float is exact.
            exact = canonical in STAMPS and kinds == {int}
            out[place.column] = pl.Int64 if exact else pl.Float64
    text = {p.column for canonical, (p, _) in found.items() if canonical not in _NUMERIC}
    return {column: kind for column, kind in out.items() if column not in text}


def _carries_unit(records: Iterable[Mapping[str, Any]], place: Place) -> bool:
    texts = [v for v in (place.of(r) for r in records) if isinstance(v, str) and v.strip()]
    return bool(texts) and all(re.search(r"\d\s*[a-zA-Zµμ]+$", t) for t in texts)


@dataclass(frozen=True)
class _Unit:
    unit: str
    why: str
    kind: str  # logged or inferred


def _decide_units(
    found: Mapping[str, tuple[Place, str | None]],
    records: tuple[Mapping[str, Any], ...],
    options: Options,
    head: Head,
) -> dict[str, _Unit]:
    """The unit of each duration: by the user, the name, the cell, or what makes sense together."""
    units: dict[str, _Unit] = {}
    open_: list[str] = []
    for canonical in (*_DURATIONS, "_tpot"):
        if canonical not in found:
            continue
        place, named = found[canonical]
        told = _unit_told(canonical, place.label, options)
        if told is not None:
            units[canonical] = _Unit(*told, "logged")
        elif named is not None:
            units[canonical] = _Unit(named, tr("the name ends in {unit}", unit=named), "logged")
        elif _carries_unit(records, place):
            units[canonical] = _Unit("s", mark("each value carries its unit"), "logged")
        else:
            open_.append(canonical)
    if not open_:
        return units
    numbers = {c: _numbers(records, found[c][0]) for c in found if c in (*_DURATIONS, "_tpot")}
    spans = _spans(found, records)
    outputs = _numbers(records, found["output_tokens"][0]) if "output_tokens" in found else []
    main: list[str] = [c for c in ("ttft_us", "e2e_us") if c in open_]
    if main:
        choices: list[dict[str, str]] = []
        for combo in itertools.product(("s", "ms", "us", "ns"), repeat=len(main)):
            trial = {**{c: u.unit for c, u in units.items()}, **dict(zip(main, combo, strict=True))}
            if _makes_sense(trial, numbers, spans, outputs):
                choices.append(dict(zip(main, combo, strict=True)))
        same = [c for c in choices if len(set(c.values())) == 1]
        picked = choices if len(choices) == 1 else (same if len(same) == 1 else [])
        if not picked and choices:
            picked = _by_digits(choices, numbers, main)
        if len(picked) != 1:
            column = found[main[0]][0].label
            raise AskUser(
                f"the unit of {column!r} cannot be decided from its name or its values",
                where=head.path,
                why="both seconds and milliseconds would make sense"
                if choices
                else "no unit makes first token, end and tokens agree",
                help=f"say it with --unit {column}=ms (or s, us, ns)",
                about=column,
            )
        for canonical, unit in picked[0].items():
            units[canonical] = _Unit(
                unit, mark("the only unit that agrees with the other columns"), "inferred"
            )
    rest = [c for c in open_ if c not in units]
    anchor = units.get("ttft_us") or units.get("e2e_us")
    for canonical in rest:
        unit = anchor.unit if anchor is not None else "s"
        units[canonical] = _Unit(
            unit, mark("assumed to share the unit of the other times"), "assumed"
        )
    return units


def _spans(
    found: Mapping[str, tuple[Place, str | None]], records: tuple[Mapping[str, Any], ...]
) -> list[float | None]:
    """Seconds from start to end by the stamps, where both are numbers of seconds."""
    if "start" not in found or "_end" not in found:
        return []
    starts = _numbers(records, found["start"][0])
    ends = _numbers(records, found["_end"][0])
    return [
        b - a if a is not None and b is not None and 1e8 < a < 1e11 and b >= a else None
        for a, b in zip(starts, ends, strict=True)
    ]


def _makes_sense(
    trial: Mapping[str, str],
    numbers: Mapping[str, list[float | None]],
    spans: list[float | None],
    outputs: list[float | None],
) -> bool:
    """First token between 0.5 ms and 20 min, not after the end, and a believable decode rate."""

    def in_seconds(canonical: str) -> list[float | None]:
        factor = US_PER[trial[canonical]] / 1e6
        return [None if v is None else v * factor for v in numbers[canonical]]

    ttft = in_seconds("ttft_us") if "ttft_us" in trial else []
    e2e = in_seconds("e2e_us") if "e2e_us" in trial else []
    for values, low, high in ((ttft, 5e-4, 1200.0), (e2e, 5e-4, 7200.0)):
        known = [v for v in values if v is not None and v > 0]
        if known and not low <= median(known) <= high:
            return False
    for end in (e2e, spans):
        pairs = [(a, b) for a, b in zip(ttft, end, strict=False) if a is not None and b is not None]
        if pairs and sum(a > b * 1.01 + 1e-3 for a, b in pairs) > 0.2 * len(pairs):
            return False
    rates = [
        (b - (a or 0.0)) / (n - 1)
        for a, b, n in zip(ttft or [None] * len(e2e), e2e, outputs, strict=False)
        if b is not None and n is not None and n > 8
    ]
    return not rates or 2e-4 <= median(rates) <= 3.0 or median(rates) <= 0


def _by_digits(
    choices: list[dict[str, str]], numbers: Mapping[str, list[float | None]], main: list[str]
) -> list[dict[str, str]]:
    """Fractions of a second are written with many digits; whole numbers of ms are not."""
    known = [v for v in numbers[main[0]] if v is not None and v > 0]
    if not known:
        return choices
    if median(known) < 20 and any(v != round(v) for v in known):
        return [c for c in choices if c[main[0]] == "s"]
    if median(known) >= 60:
        return [c for c in choices if c[main[0]] == "ms"]
    return choices


#: Inputs whose very name, beside one of cached tokens, is that of those that were computed.
_COMPUTED = ("prompt_n",)


def _why_exclusive(
    found: Mapping[str, tuple[Place, str | None]], records: tuple[Mapping[str, Any], ...]
) -> str | None:
    """Why cached tokens are known to be counted outside the input; None where they are not."""
    if "input_tokens" not in found or "cached_tokens" not in found:
        return None
    label = found["input_tokens"][0].label
    if _STRIP_PREFIX.sub("", normal(label)[0]) in _COMPUTED:
        return mark("its name is that of the tokens that were computed")
    total = _numbers(records, found["input_tokens"][0])
    read = _numbers(records, found["cached_tokens"][0])
    write = _numbers(records, found["cache_write_tokens"][0] if "cache_write_tokens" in found
                     else None)  # fmt: skip
    rows = [
        (t, (r or 0.0) + (w or 0.0))
        for t, r, w in zip(total, read, write, strict=True)
        if t is not None
    ]
    if not rows or sum(c > t for t, c in rows) <= 0.05 * len(rows):
        return None
    return mark("rows with more cached than input prove that input excludes them")


#: A list of block ids in a cell of CSV.
_CELL = re.compile(r"\s*\[[\d,\s]*\]\s*")


def _blocks(raw: Raw, column: str) -> pl.Expr:
    """The block ids of a column of lists, or of texts that hold them as JSON."""
    if raw.frame.schema[column] != pl.String:
        return pl.col(column)
    text = raw.text(column)
    ids = text.str.extract_all(r"\d+").cast(pl.List(pl.UInt64), strict=False)
    whole = text.str.contains(rf"^{_CELL.pattern}$") & (
        ids.list.len() == ids.list.drop_nulls().list.len()
    )
    return pl.when(whole).then(ids)


def _has_blocks(
    found: Mapping[str, tuple[Place, str | None]], records: tuple[Mapping[str, Any], ...]
) -> bool:
    if "prefix_blocks" not in found:
        return False
    values = [found["prefix_blocks"][0].of(r) for r in records]
    if values and all(v is None or isinstance(v, str) for v in values):
        cells = [v for v in values if v]
        return bool(cells) and all(_CELL.fullmatch(v) for v in cells)
    lists = [v for v in values if isinstance(v, list)]
    return bool(lists) and all(isinstance(x, int) and x >= 0 for v in lists for x in v[:5])


@dataclass(frozen=True)
class _Builder:
    """Turns raw frames into canonical ones by the plan."""

    found: Mapping[str, tuple[Place, str | None]]
    units: Mapping[str, _Unit]
    exclusive: str | None
    engine: bool
    columns: tuple[str, ...]
    prompts: Prompts | None
    told: Mapping[str, str]
    mapping: MappingFile | None
    stamps: _Stamps
    several: str | None
    threads: Threads = field(default_factory=Threads)

    def convert(self, raw: Raw) -> Batch:
        exprs: dict[str, pl.Expr] = {}
        fields: dict[str, Field] = {}
        notes: list[str] = []
        for name in ("request_id", "session_id", "model", "replica", "tenant", "route", "version",
                     "vantage"):  # fmt: skip
            if name in self.found:
                exprs[name] = self._words(raw.text(*self._at(name)), name)
                fields[name] = self._field(name, "", mark("by its name"))
        for name in ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
                     "reasoning_tokens", "attempts", "turn", "block_tokens"):  # fmt: skip
            if name in self.found:
                exprs[name] = raw.count(*self._at(name), strict=name == "input_tokens")
                unit = "tokens" if name.endswith("tokens") else ""
                fields[name] = self._field(name, unit, mark("by its name"))
        if "prefix_blocks" in self.found:
            exprs["prefix_blocks"] = _blocks(raw, self.found["prefix_blocks"][0].column)
            fields["prefix_blocks"] = self._field("prefix_blocks", "", mark("by its name"))
        self._times(raw, exprs, fields, notes)
        self._outcome(raw, exprs, fields)
        self._sessions(raw, exprs, fields)
        if self.exclusive is not None:
            added = [exprs["cached_tokens"].fill_null(0)]
            if "cache_write_tokens" in exprs:
                added.append(exprs["cache_write_tokens"].fill_null(0))
            exprs["input_tokens"] = exprs["input_tokens"] + pl.sum_horizontal(added)
            fields["input_tokens"] = Field(
                self.found["input_tokens"][0].label + " + cache reads and writes",
                "tokens",
                self.exclusive,
                "derived",
            )
        self._constants(exprs, fields)
        aside = None
        if "approx_cached_percent" in self.columns and "ttft_us" in exprs:
            aside = pl.when(exprs["ttft_us"] == 100).then(pl.lit("ttft_clamped"))
        if self.several is not None:
            count = raw.count(self.several, strict=False)
            aside = pl.when(count > 1).then(pl.lit("average_of_several"))
            notes.append(
                tr(
                    "each row tells of several requests ({field}) and comes an even time after the "
                    "one before: its times are averages, of which none is that of a request",
                    field=self.several,
                )
            )
        frame = raw.select(exprs, set_aside=aside)
        if self.prompts is None:
            return Batch(frame, fields, tuple(notes))
        made = self.prompts.read(frame, raw.frame)
        return Batch(
            made.frame, {**fields, **made.fields}, (*notes, *made.notes), made.parts,
            self.prompts.bytes_per_token,
        )  # fmt: skip

    def _at(self, name: str) -> tuple[str, str | None]:
        place = self.found[name][0]
        return place.column, place.path

    def _field(self, name: str, unit: str, why: str) -> Field:
        return Field(self.found[name][0].label, unit, self.told.get(name, why))

    def _told(self, why: str, *columns: str) -> str:
        """Why, and who mapped the fields that it comes from."""
        said = [self.told[column] for column in columns if column in self.told]
        return tr(", ").join(dict.fromkeys([*said, why]))

    def _words(self, text: pl.Expr, name: str) -> pl.Expr:
        """A text with the log's own words put as ours, where the mapping says so."""
        words = self.mapping.values.get(name) if self.mapping is not None else None
        return text if not words else text.replace_strict(dict(words), default=text)

    def _constants(self, exprs: dict[str, pl.Expr], fields: dict[str, Field]) -> None:
        """What the mapping says of every row; a field that is mapped too goes first."""
        if self.mapping is None:
            return
        for name, value in self.mapping.constants.items():
            known = exprs.get(name) if name in self.told else None
            fixed = pl.lit(value)
            exprs[name] = fixed if known is None else pl.coalesce(known, fixed)
            if known is None:
                unit = "tokens" if name.endswith("tokens") else ""
                fields[name] = Field(
                    f"[constant] {value}",
                    unit,
                    tr("given in {file}", file=self.mapping.name),
                    "assumed",
                )

    def _duration(self, raw: Raw, name: str, *, strict: bool) -> pl.Expr:
        column, path = self._at(name)
        return raw.duration(column, self.units[name].unit, path, strict=strict)

    def _instant(self, raw: Raw, name: str, *, strict: bool) -> pl.Expr:
        column, path = self._at(name)
        form = self.mapping.time_format if self.mapping is not None else None
        if form is not None and self.found[name][0] in self.stamps.texts:
            return raw.stamp(column, form, path)
        return raw.instant(column, self.stamps.units.get(name), path, strict=strict)

    def _times(
        self, raw: Raw, exprs: dict[str, pl.Expr], fields: dict[str, Field], notes: list[str]
    ) -> None:
        if "start" in self.found:
            exprs["start"] = self._instant(raw, "start", strict=False)
            why = mark("by its name")
            if normal(self.found["start"][0].label)[0] in ("timestamp", "ts", "time", "t", "date"):
                why = mark("the only stamp; taken as the moment the request was sent")
            fields["start"] = self._field("start", self.stamps.words.get("start", ""), why)
        for name in _DURATIONS:
            if name in self.found:
                exprs[name] = self._duration(raw, name, strict=name == "ttft_us")
                unit = self.units[name]
                said = dict.fromkeys(filter(None, (self.told.get(name), tr(unit.why))))
                fields[name] = Field(
                    self.found[name][0].label,
                    unit.unit,
                    tr(", ").join(said),
                    unit.kind,  # type: ignore[arg-type]
                )
                if unit.kind != "logged":
                    notes.append(
                        tr(
                            "{field} carries no unit; read as {unit} ({why})",
                            field=self.found[name][0].label, unit=unit.unit, why=tr(unit.why),
                        )
                    )  # fmt: skip
        if self.engine:
            queued, scheduled, first, last = (
                raw.instant(s, "s", strict=False) for s in _ENGINE_STAMPS
            )
            exprs.update(
                ttft_us=first - queued,
                e2e_us=last - queued,
                queue_us=scheduled - queued,
                prefill_us=first - scheduled,
            )
            why = mark("difference of two stamps of the engine's monotonic clock")
            for name, source in (
                ("ttft_us", "first_token_ts - queued_ts"),
                ("e2e_us", "last_token_ts - queued_ts"),
                ("queue_us", "scheduled_ts - queued_ts"),
                ("prefill_us", "first_token_ts - scheduled_ts"),
            ):
                fields[name] = Field(source, "s", why, "derived")
        if "ttft_us" not in exprs and "_first" in self.found and "start" in exprs:
            exprs["ttft_us"] = self._instant(raw, "_first", strict=False) - exprs["start"]
            fields["ttft_us"] = Field(
                f"{self.found['_first'][0].label} - {self.found['start'][0].label}",
                "us", self._told(tr("difference of two stamps"), "_first", "start"), "derived",
            )  # fmt: skip
        if "e2e_us" not in exprs and "_end" in self.found and "start" in exprs:
            exprs["e2e_us"] = self._instant(raw, "_end", strict=False) - exprs["start"]
            fields["e2e_us"] = Field(
                f"{self.found['_end'][0].label} - {self.found['start'][0].label}",
                "us", self._told(tr("difference of two stamps"), "_end", "start"), "derived",
            )  # fmt: skip
        self._end_from_rate(raw, exprs, fields)

    def _end_from_rate(self, raw: Raw, exprs: dict[str, pl.Expr], fields: dict[str, Field]) -> None:
        if "e2e_us" in exprs or "ttft_us" not in exprs or "output_tokens" not in exprs:
            return
        steps = (exprs["output_tokens"] - 1).clip(lower_bound=0)
        if "decode_us" in exprs:
            exprs["e2e_us"] = exprs["ttft_us"] + exprs["decode_us"]
            source = f"ttft + {self.found['decode_us'][0].label}"
        elif "_tpot" in self.found:
            per_token = self._duration(raw, "_tpot", strict=False)
            exprs["e2e_us"] = exprs["ttft_us"] + per_token * steps
            source = f"ttft + {self.found['_tpot'][0].label} * (output - 1)"
        elif "_tps" in self.found:
            rate = raw.number(*self._at("_tps"), strict=False)
            each = pl.when(rate > 0).then(1e6 / rate)
            exprs["e2e_us"] = exprs["ttft_us"] + (each * steps).round(0).cast(
                pl.Int64, strict=False
            )
            source = f"ttft + (output - 1) / {self.found['_tps'][0].label}"
        else:
            return
        fields["e2e_us"] = Field(source, "us", mark("rebuilt from the decode rate"), "derived")

    def _outcome(self, raw: Raw, exprs: dict[str, pl.Expr], fields: dict[str, Field]) -> None:
        tests: list[pl.Expr] = []
        sources: list[str] = []
        if "status" in self.found:
            text = self._words(raw.text(*self._at("status")), "status")
            tests.append(raw.each(text, status_of))
            sources.append("status")
        if "_success" in self.found:
            good = raw.boolean(*self._at("_success"))
            tests.append(pl.when(good).then(pl.lit("ok")).when(~good).then(pl.lit("error")))
            sources.append("_success")
        for name in ("_error_code", "_error"):
            if name in self.found:
                text = raw.text(*self._at(name))
                limited = text.str.contains(r"(?i)429|rate.?limit")
                tests.append(
                    pl.when(limited).then(pl.lit("rate_limited"))
                    .when(text.is_not_null() & ~text.str.to_lowercase().is_in(["0", "false", "{}",
                                                                               "[]", "ok"]))
                    .then(pl.lit("error"))
                )  # fmt: skip
                sources.append(name)
        if tests:
            bad = [pl.when(t != "ok").then(t) for t in tests]
            exprs["status"] = pl.coalesce(*bad, *tests) if len(tests) > 1 else tests[0]
            fields["status"] = Field(
                ", ".join(self.found[s][0].label for s in sources), "",
                next((self.told[s] for s in sources if s in self.told), mark("by its name")),
            )  # fmt: skip
        if "streamed" in self.found:
            words = self.mapping.values.get("streamed") if self.mapping is not None else None
            exprs["streamed"] = raw.boolean(*self._at("streamed"), words=words)
            fields["streamed"] = self._field("streamed", "", mark("by its name"))
        if "attempts" not in exprs and "_retries" in self.found:
            exprs["attempts"] = raw.count(*self._at("_retries"), strict=False) + 1
            fields["attempts"] = Field(
                f"{self.found['_retries'][0].label} + 1", "",
                self.told.get("_retries", mark("by its name")), "derived",
            )  # fmt: skip

    def _sessions(self, raw: Raw, exprs: dict[str, pl.Expr], fields: dict[str, Field]) -> None:
        answer = next((n for n in ("_answer", "request_id") if n in self.found), None)
        if "session_id" not in exprs and "_previous" in self.found and answer is not None:
            ids = raw.frame.select(
                raw.text(*self._at(answer)).alias("id"),
                raw.text(*self._at("_previous")).alias("before"),
            )
            exprs["session_id"] = pl.lit(self.threads.sessions(ids["id"], ids["before"]))
            fields["session_id"] = Field(
                f"{self.found['_previous'][0].label}, {self.found[answer][0].label}", "",
                mark("the answer that each request goes on from"), "derived",
            )  # fmt: skip
        if "session_id" not in exprs and "_user" in self.found:
            exprs["session_id"] = raw.text(*self._at("_user"))
            fields["session_id"] = Field(
                self.found["_user"][0].label, "", mark("a user with numbered turns"), "derived"
            )
            if "trace_id" in self.columns and raw.has("trace_id"):
                exprs["session_id"] = pl.concat_str(
                    [exprs["session_id"], raw.text("trace_id")], separator="/", ignore_nulls=True
                )
        if "turn" not in exprs and "_messages" in self.found:
            exprs["turn"] = (raw.count(*self._at("_messages"), strict=False) + 1) // 2
            fields["turn"] = Field(
                f"({self.found['_messages'][0].label} + 1) / 2", "",
                mark("messages come in pairs"), "derived",
            )  # fmt: skip


READER = Reader(
    name="flat",
    title="Flat records under the usual names (JSON lines, array, CSV, Parquet)",
    shapes=(Shape.JSON, Shape.CSV, Shape.PARQUET),
    recognise=recognise,
    plan=plan,
    generic=True,
)

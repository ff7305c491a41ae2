"""A second look into a flat log, for the fields that no column uses.

Only short words and numbers are taken, of few fields and rows: what a prompt says, who asked and
what a key is are neither held nor shown.
"""

from __future__ import annotations

import os
import re
from contextlib import closing

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.errors import TTFTDoctorError
from ttftdoctor.guide import for_path, in_manner, is_table
from ttftdoctor.intake import Log
from ttftdoctor.intake.mixed import Part, parts_of
from ttftdoctor.mapping.fields import leaves
from ttftdoctor.prompts import find
from ttftdoctor.readers import Options, Raw
from ttftdoctor.readers.flat import normal, records_of
from ttftdoctor.sources import Source
from ttftdoctor.table import LINE
from ttftdoctor.units import US_PER

#: Rows and fields that are looked at, at most.
MOST_ROWS, MOST_FIELDS = 50_000, 24
#: A longer value is no name of anything.
LONGEST = 48
#: So many of a field's values must be words.
WORDS = 0.98
#: A value that is a word: a name, a number, true or false.
_WORD = rf"^[\w.:/+-]{{1,{LONGEST}}}$"
#: Fields with such names are shown as they are.
_PLAIN = re.compile(r"[\w.@-]{1,40}")
#: Of these the values are somebody's own: texts, people, keys.
_OWN = re.compile(
    r"(^|_)(prompts?|messages?|contents?|texts?|inputs?|outputs?|completions?|answers?|repl(y|ies)"
    r"|quer(y|ies)|questions?|bod(y|ies)|instructions?|titles?|summar(y|ies)|keys?|secrets?|token"
    r"|auth|authorization|passwords?|cookies?|users?|e?mails?|phones?|ips?|address(es)?"
    r"|headers?)(_|$)"
)
#: What is known only afterwards, or is made of the very time that is to be explained.
_AFTER = re.compile(
    r"(^|_)(finish|finished|stop|status|state|error|errors|exception|result|outcome|success|slow"
    r"|late|sla|slo|breach|breached|timeout|timed|latency|duration|elapsed|total|overall|whole|e2e"
    r"|ttft|tpot|itl|cost|price|score|rating|bucket|percentile|throughput|rate|tps|end|ended|done"
    r"|first|last|start|started|created|line|seq|index|idx)(_|$)"
)


def values_of(log: Log) -> tuple[pl.DataFrame, NDArray[np.bool_]] | None:
    """Values of the fields that no column uses, a row for each row of ``log.requests``.

    Texts where they are words, and Float64 of numbers; durations of a named unit are in seconds.
    Beside them, which rows were looked at. None if there are none, or the log cannot be read
    again, or is no longer what was read.
    """
    labels, proof = _labels(log), _proof(log)
    if not labels or proof is None or log.requests.height == 0:
        return None
    column, label = proof
    try:
        found = _read(log.inputs[0].path, [*labels, label])
    except (TTFTDoctorError, OSError, pl.exceptions.PolarsError):
        return None  # what could be read once need not be there any more
    if found is None:
        return None
    rows = log.requests.select(LINE, column).join(found, on=LINE, how="left", maintain_order="left")
    if not _same(rows[column], rows[label]):
        return None
    kept = [_of_kind(rows[name]) for name in labels if name in rows.columns]
    frame = pl.DataFrame([series for series in kept if series is not None])
    return (frame, rows[label].is_not_null().to_numpy()) if frame.width else None


def _labels(log: Log) -> list[str]:
    """The fields that may be looked at, the first of them."""
    if len(log.inputs) != 1 or log.inputs[0].format != "flat" or log.beside.sample is None:
        return []
    if not os.path.isfile(log.inputs[0].path):
        return []  # what came through a pipe or over a network is not asked for again
    _, records = records_of(log.beside.sample)
    texts = find(tuple(records))
    inside = set() if texts is None else set(texts.columns)
    places = {p.label: p for p in leaves(records, dict.fromkeys(k for r in records for k in r))}
    out = []
    for one in log.beside.unused:
        name = normal(one.name)[0]
        if one.name not in places or places[one.name].column in inside:
            continue
        if one.kind in ("nothing", "list", "object", "mixed", "moment"):
            continue
        if _PLAIN.fullmatch(one.name) and not _OWN.search(name) and not _AFTER.search(name):
            out.append(one.name)
    return out[:MOST_FIELDS]


def _proof(log: Log) -> tuple[str, str] | None:
    """A column and the field that it was read from, by which to know the log again."""
    for column in ("input_tokens", "output_tokens"):
        found = log.fields.get(column)
        if found is not None and found.kind == "logged" and _PLAIN.fullmatch(found.source):
            return column, found.source
    return None


def _read(path: str, labels: list[str]) -> pl.DataFrame | None:
    options = for_path(path, "flat", in_manner(Options()))
    with (
        closing(Source(path, table=is_table("flat", options))) as source,
        parts_of(source, "flat") as found,
    ):
        if len(found.parts) != 1:
            return None
        return _columns(found.parts[0], options, labels)


def _columns(part: Part, options: Options, labels: list[str]) -> pl.DataFrame | None:
    """The fields of the first rows of a part, as short texts, with the lines of the file."""
    unwrap, records = records_of(part.source.head)
    places = {p.label: p for p in leaves(records, dict.fromkeys(k for r in records for k in r))}
    wanted = {label: places[label] for label in labels if label in places}
    schema = dict.fromkeys((place.column for place in wanted.values()), pl.String)
    frames: list[pl.DataFrame] = []
    n = 0
    for chunk in part.source.chunks(schema, unwrap=unwrap):
        raw = Raw(chunk.frame.head(MOST_ROWS - n), options)
        texts = {label: raw.text(place.column, place.path) for label, place in wanted.items()}
        frame = raw.frame.select(
            LINE,
            *(pl.when(text.str.len_bytes() <= LONGEST).then(text).alias(label)
              for label, text in texts.items()),
        )  # fmt: skip
        frames.append(frame.with_columns(part.place(frame[LINE]).alias(LINE)))
        n += frame.height
        if n >= MOST_ROWS:
            break
    if not frames:
        return None
    return pl.concat(frames).unique(LINE, keep="none", maintain_order=True)


def _same(before: pl.Series, now: pl.Series) -> bool:
    """Whether nearly all of the rows that were found again hold what they held."""
    numbers = now.cast(pl.Float64, strict=False).to_numpy()
    both = np.isfinite(numbers) & before.is_not_null().to_numpy()
    if both.sum() < 20:
        return False
    return bool((before.cast(pl.Float64).to_numpy()[both] == numbers[both]).mean() >= 0.99)


def _of_kind(values: pl.Series) -> pl.Series | None:
    """A field as numbers or as words; None where it is mostly neither."""
    known = values.drop_nulls()
    if len(known) < 20:
        return None
    numbers = values.cast(pl.Float64, strict=False)
    if numbers.count() == len(known):
        unit = normal(values.name)[1]
        return numbers * (US_PER[unit] / 1e6) if unit in US_PER else numbers
    words = known.str.contains(_WORD).mean()
    if not isinstance(words, float) or words < WORDS:
        return None
    # What else stands among the words is nobody's business.
    frame = pl.DataFrame([values])
    word = pl.when(pl.col(values.name).str.contains(_WORD)).then(pl.col(values.name))
    return frame.select(word.alias(values.name)).to_series()

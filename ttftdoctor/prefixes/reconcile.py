"""The model beside what the engine did: how far apart they are, and where in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.rows import Rows
from ttftdoctor.prefixes.ladder import RUNGS
from ttftdoctor.prefixes.records import Gap, Reconciled
from ttftdoctor.prefixes.rungs import Walk
from ttftdoctor.prefixes.words import column_of, value_of
from ttftdoctor.stats import Array
from ttftdoctor.units import count, share, signed_share, tokens

if TYPE_CHECKING:
    from ttftdoctor.prefixes.metrics import Counters

Index = NDArray[np.int64]

#: A page that counts so much more or less prompt tokens than the log covers another span.
SPAN = 0.05
#: Shares this close, in points, are the same.
SAME_POINTS = 0.05
#: ... and so close they may well mean the same.
NEAR_POINTS = 1.0
#: Groups that are shown at most.
TOP = 8
#: A difference of less than this part of all prompt tokens is not looked for anywhere.
WORTH = 0.005
#: A group stands out if its errors, per token found or modelled, are this many times those of the
#: rest,
TIMES = 2.0
#: what it has beyond the rest's rate is this part of all errors,
PART = 0.05
#: that lies this many standard errors from none,
SURE = 4.0
#: and at least this part of its errors points one way.
ONE_WAY = 0.5


# --- beside a page of metrics ---------------------------------------------------------------------


def beside_metrics(
    counters: Counters, model: Sequence[tuple[str, float]], input_tokens: float
) -> Reconciled:
    """The engine's hit share beside the rungs of the ladder, and which it comes nearest to.

    ``difference_points`` is engine less model. A page counts all its requests as one: nothing is
    known per request, and nothing of where the difference is.

    Parameters
    ----------
    model
        Rungs of the ladder from the ideal down, as (id, hit tokens); at least one.
    input_tokens
        Prompt tokens of the requests that were modelled.

    Raises
    ------
    InputError
        If the engine has looked up nothing yet.
    """
    engine = counters.share
    if engine is None:
        raise InputError(
            "the engine has counted no prompt tokens yet",
            where=" and ".join(counters.names),
            help="save the page after the requests of the log, not before",
        )
    total = max(float(input_tokens), 1.0)
    shares = [(rung, float(hits) / total) for rung, hits in model]
    # Of rungs that say the same, the last: all limits down to it hold together.
    at = min(range(len(shares)), key=lambda i: (round(abs(shares[i][1] - engine), 12), -i))
    rung, modelled = shares[at]
    in_blocks = counters.unit == "blocks"
    doubts = [text for text in (_span(counters, input_tokens), _repeated(counters)) if text]
    beside = (
        mark("the engine found {engine} of the blocks; {model} says {modelled}: {difference}")
        if in_blocks
        else mark("the engine found {engine} of the tokens; {model} says {modelled}: {difference}")
    )
    says = tr(beside, engine=_per_cent(engine), model=_model(rung), modelled=_per_cent(modelled),
              difference=_points(engine - modelled))  # fmt: skip
    meaning = "" if doubts else _meaning(engine, shares, at)
    if meaning:
        says = tr("{found}, {meaning}", found=says, meaning=meaning)
    parts = [says]
    if in_blocks:
        parts.append(tr("a share of blocks is not quite one of tokens"))
    parts += [*doubts, *counters.notes]
    if counters.prompt_tokens is None and counters.queried_tokens is None:
        parts.append(
            tr(
                "the page does not count prompt tokens: whether it is of the same requests as the "
                "log is not known"
            )
        )
    return Reconciled(
        source=tr("{engine} metrics ({names})",
                  engine=counters.engine, names=", ".join(counters.names)),
        engine_share=engine,
        model_share=modelled,
        model_rung=rung,
        difference_points=100.0 * (engine - modelled),
        mean_error_points=None,
        over_tokens=None,
        under_tokens=None,
        where=(),
        says=tr("; ").join(parts),
    )  # fmt: skip


def _meaning(engine: float, shares: Sequence[tuple[str, float]], at: int) -> str:
    """What it means to be nearest to this rung, and not to one before or after it."""
    highest, lowest = max(s for _, s in shares), min(s for _, s in shares)
    if 100.0 * (engine - highest) > NEAR_POINTS:
        return tr(
            "and more than the model has on any rung: the engine met prompts that are not in the "
            "log, or reuses what their blocks do not show (answers, images)"
        )
    if 100.0 * (lowest - engine) > NEAR_POINTS:
        return tr("and less than any rung leaves: the engine loses more than the limits modelled")
    rung, modelled = shares[at]
    if 100.0 * abs(engine - modelled) > NEAR_POINTS:
        steps = pairwise(shares)
        between = [below[0] for above, below in steps if above[1] >= engine >= below[1]]
        if not between:
            return ""
        if between[0] == "actual":
            return tr("and more than the log reports")
        return tr("so it loses part of what the model takes off {rung}", rung=_rung(between[0]))
    later = [r for r, s in shares[at + 1 :] if 100.0 * (modelled - s) > NEAR_POINTS]
    if later:
        if later[0] == "actual":
            return tr("and more than the log reports")
        return tr("so it does not lose what the model takes off {rung}", rung=_rung(later[0]))
    if rung == "ideal":
        return tr("so it loses next to nothing of what the prompts share")
    if rung == "actual":
        return tr("so the page and the log agree")
    return tr("so the limits down to that rung account for it")


def _span(counters: Counters, input_tokens: float) -> str:
    """Whether the page and the log are of the same requests, by their prompt tokens."""
    page = counters.prompt_tokens
    page = counters.queried_tokens if page is None else page
    if page is None:
        return ""
    off = page / max(float(input_tokens), 1.0) - 1.0
    if abs(off) <= SPAN:
        return ""
    return tr(
        "the page counts {page} prompt tokens and the log {log} ({off}): it covers another span "
        "of time or other requests, and the two are not comparable (take one page before the log "
        "begins and one after, and give both)",
        page=tokens(page), log=tokens(input_tokens), off=signed_share(off),
    )  # fmt: skip


def _repeated(counters: Counters) -> str:
    """Whether prompts were looked up more than once, so that the share is not one of prompts."""
    times = counters.repeats
    if times is None or times <= 1.0 + SPAN:
        return ""
    return tr(
        "{n} times as many tokens were looked up as the prompts have, so prompts were looked up "
        "more than once (some engines count one that waits at every try): the share is of lookups, "
        "not of prompts",
        n=format(times, ".1f"),
    )


# --- beside what the log reports ------------------------------------------------------------------


def beside_log(
    rows: Rows, at: Index, walk: Walk, keys: Mapping[str, tuple[Index, Sequence[str]]]
) -> tuple[Reconciled, ...]:
    """The walk down the ladder beside the counts of the log; nothing where it has none."""
    if not rows.cached_logged:
        return ()
    found = beside_reported(walk.modelled(), rows.cached[at], rows.inputs[at], keys, "rounding")
    return () if found is None else (found,)


def beside_reported(
    model_hits: Array,
    actual: Array,
    inputs: Array,
    keys: Mapping[str, tuple[Index, Sequence[str]]],
    rung: str,
) -> Reconciled | None:
    """The model beside the cached tokens that the log reports, request by request.

    Requests are compared where all three figures are known and there is a prompt. Over them,
    exactly, model tokens - ``under_tokens`` + ``over_tokens`` = engine tokens; figures are taken in
    whole tokens. ``difference_points`` is engine less model, ``mean_error_points`` the mean over
    requests of how far they are apart, in points of the request's prompt.

    Where the difference is: a group is named whose errors per token at stake (the larger of model
    and engine) are at least :data:`TIMES` those of all others, by enough tokens and requests not to
    be chance, and mostly in one direction. Loss that goes with the reuse itself (the later turns
    have more of both) so stands out nowhere.

    Parameters
    ----------
    model_hits
        Tokens that the model finds in the cache, shape (n,).
    actual
        Tokens that the engine found, shape (n,); NaN where the log does not say.
    inputs
        Prompt tokens, shape (n,).
    keys
        Column to (a number per request, -1 unknown; the names of the numbers).
    rung
        Id of the rung that ``model_hits`` are of.

    Returns
    -------
    Reconciled or None
        None where no request can be compared.
    """
    known = np.isfinite(actual) & np.isfinite(model_hits) & np.isfinite(inputs) & (inputs > 0)
    if not known.any():
        return None
    model, engine = np.rint(model_hits[known]), np.rint(actual[known])
    size = inputs[known]
    off = engine - model
    total = float(size.sum())
    over, under = int(off[off > 0].sum()), int(-off[off < 0].sum())
    gaps = _where(model, engine, total, {
        column: (codes[known], names) for column, (codes, names) in keys.items()
    })  # fmt: skip
    engine_share, model_share = float(engine.sum()) / total, float(model.sum()) / total
    error = 100.0 * float(np.mean(np.abs(off) / size))
    says = tr(
        "the engine found {engine} of the prompt tokens; {model} says {modelled}: {difference}",
        engine=_per_cent(engine_share), model=_model(rung), modelled=_per_cent(model_share),
        difference=_points(engine_share - model_share),
    )  # fmt: skip
    if over or under:
        says = tr(
            "{found} ({over} tokens more where it found more, {under} fewer where it found fewer; "
            "{error} points of a prompt on average)",
            found=says, over=tokens(over), under=tokens(under), error=format(error, ".1f"),
        )  # fmt: skip
    parts = [says]
    if gaps:
        parts.append(_told(gaps[0], float(over + under)))
    elif over + under >= WORTH * total and keys:
        parts.append(
            tr("the difference is not in any one part of the log that could be told apart")
        )
    left = len(actual) - int(known.sum())
    if left:
        parts.append(tr("{n} requests without a reported count are left out", n=count(left)))
    return Reconciled(
        source=tr("cached tokens that the log reports"),
        engine_share=engine_share,
        model_share=model_share,
        model_rung=rung,
        difference_points=100.0 * (engine_share - model_share),
        mean_error_points=error,
        over_tokens=over,
        under_tokens=under,
        where=tuple(g.gap for g in gaps),
        says=tr("; ").join(parts),
    )


@dataclass(frozen=True)
class _Standing:
    """A group that stands out: its gap, its errors, and what it has beyond the rate of others."""

    gap: Gap
    errors: float
    extra: float


def _where(
    model: Array,
    engine: Array,
    total: float,
    keys: Mapping[str, tuple[Index, Sequence[str]]],
) -> list[_Standing]:
    """The groups in which the difference is concentrated, those that hold most of it first."""
    if float(np.abs(engine - model).sum()) < WORTH * total:
        return []
    found = [
        standing
        for column, (codes, names) in keys.items()
        for standing in _of_column(column, codes, names, model, engine)
    ]
    found.sort(key=lambda s: (-s.extra, s.gap.column, s.gap.value))
    return found[:TOP]


def _of_column(
    column: str, codes: Index, names: Sequence[str], model: Array, engine: Array
) -> list[_Standing]:
    """Compare each group of a column with all other requests that have one."""
    have = np.flatnonzero(codes >= 0)
    group, model, engine = codes[have], model[have], engine[have]
    requests = np.bincount(group, minlength=len(names))
    if np.count_nonzero(requests) < 2:
        return []
    error, stake = np.abs(engine - model), np.maximum(model, engine)

    def summed(values: Array) -> Array:
        out: Array = np.bincount(group, weights=values, minlength=len(names)).astype(np.float64)
        return out

    errors, stakes, net = summed(error), summed(stake), summed(engine - model)
    all_errors, all_stakes = float(errors.sum()), float(stakes.sum())
    rest = (all_errors - errors) / np.maximum(all_stakes - stakes, 1.0)
    extra = errors - rest * stakes
    # How far chance alone would take the sum: each request varies about the rest's rate.
    spread = np.sqrt(summed((error - rest[group] * stake) ** 2))
    out = np.flatnonzero(
        (errors > 0)
        & (stakes < all_stakes)
        & (errors >= TIMES * rest * stakes)
        & (extra >= PART * all_errors)
        & (extra >= SURE * spread)
        & (np.abs(net) >= ONE_WAY * errors)
    )
    models, engines = summed(model), summed(engine)
    return [
        _Standing(
            Gap(column, names[i], int(requests[i]), int(models[i]), int(engines[i])),
            float(errors[i]), float(extra[i]),
        )
        for i in out.tolist()
    ]  # fmt: skip


# --- words ----------------------------------------------------------------------------------------


def _told(first: _Standing, errors: float) -> str:
    gap = first.gap
    said = (
        mark("{part} of the difference is where {column} is {value}: in its {n} requests the "
             "engine found {difference} tokens more than modelled ({engine} of {model})")
        if gap.engine_tokens > gap.model_tokens
        else mark("{part} of the difference is where {column} is {value}: in its {n} requests the "
                  "engine found {difference} tokens fewer than modelled ({engine} of {model})")
    )  # fmt: skip
    return tr(
        said,
        part=share(first.errors / errors),
        column=column_of(gap.column, 60),
        value=value_of(gap.column, gap.value, 60),
        n=count(gap.requests),
        difference=tokens(abs(gap.engine_tokens - gap.model_tokens)),
        engine=tokens(gap.engine_tokens),
        model=tokens(gap.model_tokens),
    )


def _rung(rung: str) -> str:
    return tr(RUNGS[rung][0]) if rung in RUNGS else rung


def _model(rung: str) -> str:
    """What says so: ``the model after routing``, or the log itself."""
    if rung == "actual":
        return tr("the log itself")
    if rung in RUNGS and rung != "ideal":
        return tr("the model {after}", after=_rung(rung))
    return tr("the model of {rung}", rung=_rung(rung))


def _per_cent(value: float) -> str:
    return tr("{n} %", n=format(100.0 * value, ".1f"))


def _points(difference: float) -> str:
    """``1.8 points less``: what the engine has more or less than the model."""
    points = 100.0 * difference
    if abs(points) < SAME_POINTS:
        return tr("the same")
    size = f"{abs(points):.1f}"
    return tr("{n} points more", n=size) if points > 0 else tr("{n} points less", n=size)

"""Broken beginnings in logs that tell blocks only: sessions whose reuse is stuck at one place.

Chained ids say where two prompts differ, but not what stands behind. One pair proves nothing: a
branch, a title that is asked for or a new conversation look alike. A session whose turns differ
from the ones before at the same place again and again is broken there. Values that come back
cannot be told from branches and are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ttftdoctor.prefixes.texts import Array, Hash, Index, Mask, keyed, latest_before, mix

#: Turns of a session that must differ at one place.
FEWEST = 2
#: ... and the part of its turns that must.
MOST = 0.5
#: Blocks that are lost where something is: the last block of a prompt often ends otherwise.
LEAST_BLOCKS = 2
#: A prompt that grew by no more than this did not grow.
GROWN = 1.02
#: History is cut where this part of a session's broken turns do not grow at all: a window that
#: slides over messages of any length is longer about as often as shorter, a chat only grows.
SHRUNK = 0.25
#: ... where so many turns of the log's usual share are added to those of the session.
PRIOR_TURNS = 4


@dataclass(frozen=True)
class Stuck:
    """Turns that should share more blocks than they do; one value each.

    ``earlier`` and ``later`` rows; ``shared``, ``ideal`` and ``should`` blocks, all from the start:
    common to both, known from any earlier prompt, and held by the earlier one (no more than the
    later one has); ``seen`` tells if the block that differs was there before, ``grew`` if the
    session's prompts only grow. ``looked`` are the rows that were looked at, (n,).
    """

    earlier: Index
    later: Index
    shared: Index
    ideal: Index
    should: Index
    seen: Mask
    grew: Mask
    looked: Mask


def by_blocks(blocks: pl.Series, session: Index, model: Index, inputs: Array) -> Stuck:
    """Find sessions whose reuse is stuck.

    Parameters
    ----------
    blocks
        Chained ids of each prompt's blocks, in order of arrival; null or empty where unknown.
    session, model
        Numbers, (n,); session -1 where it is not known.
    inputs
        Prompt tokens, NaN where unknown.
    """
    n = len(blocks)
    lengths = blocks.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    lengths = np.where(session >= 0, lengths, 0)
    offset = np.concatenate(([0], np.cumsum(lengths)))
    flat: Hash = (
        blocks.to_frame("b")
        .filter(pl.Series(lengths > 0))
        .explode("b")["b"]
        .cast(pl.UInt64)
        .fill_null(0)
        .to_numpy()
    )
    row = np.repeat(np.arange(n), lengths)
    scope = keyed(np.zeros(n, np.uint64), session, model)
    mine = keyed(mix(flat), scope[row])
    known = _known(mine, row, n)
    anywhere = _known(keyed(mix(flat), model[row]), row, n)

    rows = np.flatnonzero(lengths > 0)
    before = latest_before(scope[rows], rows, scope[rows], rows)
    later = rows[before >= 0]
    looked = np.zeros(n, dtype=bool)
    looked[later] = True
    # The latest request that has all that is known; where nothing is, the one before.
    last = offset[later] + np.maximum(known[later] - 1, 0)
    having = latest_before(mine[last], later, mine, row)
    earlier = np.where(known[later] > 0, having, before[before >= 0])
    shared = known[later]
    should = np.minimum(lengths[earlier], lengths[later])
    unknown = np.isnan(inputs[later] + inputs[earlier])
    more_blocks = lengths[later] > lengths[earlier]
    grew = np.where(unknown, more_blocks, inputs[later] > GROWN * inputs[earlier])
    longer = np.where(unknown, more_blocks, inputs[later] > inputs[earlier])
    broken = should - shared >= LEAST_BLOCKS
    broken &= _again(scope[later], shared, broken, grew)
    place = np.minimum(offset[later] + shared, max(len(flat) - 1, 0))
    return Stuck(
        earlier=earlier[broken], later=later[broken], shared=shared[broken],
        ideal=np.maximum(shared, anywhere[later])[broken], should=should[broken],
        seen=(anywhere[later] > shared)[broken] if len(place) else np.zeros(0, bool),
        grew=_only_grow(scope[later][broken], ~longer[broken]), looked=looked,
    )  # fmt: skip


def _only_grow(scope: Hash, shrunk: Mask) -> Mask:
    """Whether few turns of the session of each broken turn are no longer than the one before.

    A session of two or three turns tells little, so that it leans on the share of all.
    """
    turns = pl.DataFrame({"scope": scope, "shrunk": shrunk})
    usual = pl.col("shrunk").mean() * PRIOR_TURNS
    share = (pl.col("shrunk").sum().over("scope") + usual) / (pl.len().over("scope") + PRIOR_TURNS)
    return turns.select((share < SHRUNK).alias("grow"))["grow"].to_numpy()


def _known(keys: Hash, row: Index, n: int) -> Index:
    """How many of its first blocks each prompt shares with an earlier one, (n,)."""
    out = np.zeros(n, dtype=np.int64)
    if len(keys):
        _, first, code = np.unique(keys, return_index=True, return_inverse=True)
        np.add.at(out, row[row[first[code]] < row], 1)
    return out


def _again(scope: Hash, shared: Index, broken: Mask, grew: Mask) -> Mask:
    """Sessions where it is the same place again; from the very start only if all turns grow."""
    turns = pl.DataFrame({"scope": scope, "shared": shared, "broken": broken, "grew": grew})
    places = (
        turns.filter("broken")
        .group_by("scope", "shared")
        .agg(pl.len().alias("times"), pl.col("grew").mean().alias("growing"))
        .join(turns.group_by("scope").agg(pl.len().alias("turns")), on="scope")
        .filter(
            pl.col("times") >= FEWEST,
            pl.col("times") >= MOST * pl.col("turns"),
            (pl.col("shared") > 0)
            | ((pl.col("times") == pl.col("turns")) & (pl.col("growing") > 0.8)),
        )
        .select("scope", "shared", stuck=pl.lit(True))
    )
    joined = turns.join(places, on=["scope", "shared"], how="left", maintain_order="left")
    return joined["stuck"].fill_null(False).to_numpy()

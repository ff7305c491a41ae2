"""The tree of prompts and the walks over it, beside slow references that are plainly right."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttftdoctor.measure import kernels
from ttftdoctor.measure.caches import Cached, caches, one_cache, shared_of
from ttftdoctor.measure.links import by_blocks
from ttftdoctor.measure.trie import Trie, trie_of
from ttftdoctor.prefixes.capacity import capacity_curve, ramps_of

BLOCK = 16
Path = tuple[str, ...]

#: Prompts as words over three letters: every beginning is a block of its own.
prompts = st.lists(st.text("abc", max_size=6), min_size=1, max_size=14)


def chain(prompt: str) -> Path:
    return tuple(prompt[: i + 1] for i in range(len(prompt)))


def ids(prompts: list[str]) -> list[list[int]]:
    known: dict[str, int] = {}
    return [[known.setdefault(b, len(known) * 7919 + 11) for b in chain(p)] for p in prompts]


def table(prompts: list[str], partial: int = 0) -> pl.DataFrame:
    """A log of these prompts, one a second; ``partial`` tokens lack in each last block."""
    return pl.DataFrame(
        {
            "prefix_blocks": ids(prompts),
            "block_tokens": [BLOCK] * len(prompts),
            "input_tokens": [max(len(p) * BLOCK - partial, 1) for p in prompts],
            "start": [i * 1_000_000 for i in range(len(prompts))],
            "source": [0] * len(prompts),
        },
        schema_overrides={"prefix_blocks": pl.List(pl.UInt64), "block_tokens": pl.UInt32},
    )


def tree(prompts: list[str], partial: int = 0) -> Trie:
    trie, chained = trie_of(table(prompts, partial))
    assert chained
    return trie


def lru(prompts: list[str], size: int, replica: list[int] | None = None) -> list[int]:
    """Blocks found by each request in caches of ``size`` blocks; leaves go first."""
    stores: dict[int, list[str]] = {}
    out = []
    for prompt, where in zip(prompts, replica or [0] * len(prompts), strict=True):
        kept = stores.setdefault(where, [])
        path = chain(prompt)
        hits = 0
        while hits < len(path) and path[hits] in kept:
            hits += 1
        out.append(hits)
        # Newest first: the path from its root, then what was there.
        stores[where] = [*path, *(block for block in kept if block not in path)][:size]
    return out


def reuse(prompts: list[str]) -> list[int]:
    return lru(prompts, 10**6)


@given(prompts)
def test_the_tree_holds_every_prompt(made: list[str]) -> None:
    trie = tree(made)
    assert trie.n == len(made)
    assert trie.per_request(trie.tokens[trie.nodes]).tolist() == [len(p) * BLOCK for p in made]
    distinct = {block for prompt in made for block in chain(prompt)}
    assert trie.tokens.sum() == len(distinct) * BLOCK
    # No node could be longer: one begins where other requests have the block than the one before.
    holders = {b: [b in chain(p) for p in made] for b in distinct}
    heads = [b for b in distinct if len(b) == 1 or holders[b] != holders[b[:-1]]]
    assert len(trie.tokens) == len(heads)


@given(prompts)
def test_recency_is_lru_at_every_size(made: list[str]) -> None:
    one = one_cache(tree(made))
    for size in range(12):
        assert (one.hits(capacity_tokens=size * BLOCK) // BLOCK).tolist() == lru(made, size)
    assert (one.hits() // BLOCK).tolist() == reuse(made)


@given(prompts, st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_each_replica_has_its_own_cache(made: list[str], replicas: int, seed: int) -> None:
    where = np.random.default_rng(seed).integers(0, replicas, len(made))
    apart = caches(tree(made), where)
    for size in (0, 1, 3, 100):
        found = (apart.hits(capacity_tokens=size * BLOCK) // BLOCK).tolist()
        assert found == lru(made, size, where.tolist())


@given(prompts, st.integers(0, 14))
def test_what_was_not_used_for_long_is_gone(made: list[str], ttl: int) -> None:
    found = one_cache(tree(made)).hits(ttl_s=float(ttl)) // BLOCK
    used: dict[str, int] = {}
    for now, prompt in enumerate(made):
        hits = 0
        for block in chain(prompt):
            if block not in used or now - used[block] > ttl:
                break
            hits += 1
        assert found[now] == hits
        used.update(dict.fromkeys(chain(prompt), now))


@given(prompts)
def test_the_curve_is_the_sum_of_the_hits(made: list[str]) -> None:
    for partial in (0, 5):
        one = one_cache(tree(made, partial))
        sizes = np.arange(12) * BLOCK
        curve = ramps_of(one).hits(sizes)
        direct = [int(one.hits(capacity_tokens=int(c)).sum()) for c in sizes]
        assert curve.tolist() == pytest.approx(direct)


def belady(prompts: list[str], size: int) -> list[int]:
    """Keep what is used again soonest; what lies above comes first among equals."""
    paths = [chain(p) for p in prompts]

    def coming(block: str, now: int) -> int:
        return next((i for i in range(now + 1, len(paths)) if block in paths[i]), 10**9)

    kept: set[str] = set()
    out = []
    for now, path in enumerate(paths):
        hits = 0
        while hits < len(path) and path[hits] in kept:
            hits += 1
        out.append(hits)
        ranked = sorted(kept | set(path), key=lambda b: (coming(b, now), len(b), b))
        kept = {block for block in ranked[:size] if coming(block, now) < 10**9}
    return out


def served(prompts: list[str], size: int) -> list[int]:
    trie = tree(prompts)
    following = kernels.follows(trie.offsets, trie.nodes, len(trie.tokens))
    hits = kernels.clairvoyant(trie.offsets, trie.nodes, trie.tokens, following, size * BLOCK)
    found: list[int] = (hits // BLOCK).tolist()
    return found


@given(prompts, st.integers(0, 8))
def test_the_clairvoyant_cache_follows_beladys_rule(made: list[str], size: int) -> None:
    assert sum(served(made, size)) == sum(belady(made, size))


@settings(max_examples=60)
@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.integers(0, 3))
def test_no_cache_does_better_than_the_clairvoyant_one(made: list[str], size: int) -> None:
    best: dict[frozenset[str], int] = {frozenset(): 0}
    for prompt in made:
        path = chain(prompt)
        after: dict[frozenset[str], int] = {}
        for kept, score in best.items():
            hits = 0
            while hits < len(path) and path[hits] in kept:
                hits += 1
            pool = sorted(kept | set(path))
            for n in range(min(size, len(pool)) + 1):
                for some in combinations(pool, n):
                    key = frozenset(some)
                    after[key] = max(after.get(key, 0), score + hits)
        best = after
    assert sum(served(made, size)) == max(best.values())


@given(prompts)
def test_the_optimum_lies_between_lru_and_the_ideal(made: list[str]) -> None:
    trie = tree(made)
    one = one_cache(trie)
    curve = capacity_curve(trie, one, None)
    if curve is None:
        assert sum(reuse(made)) == 0
        return
    for size in curve.sizes:
        assert size.lru_share <= size.optimal_share + 1e-9
        assert size.optimal_of_ideal <= 1 + 1e-9
    assert curve.sizes[-1].lru_of_ideal == pytest.approx(1.0)
    assert curve.flat_tokens is not None
    kept = float(ramps_of(one).hits(np.array([curve.flat_tokens]))[0])
    less = float(ramps_of(one).hits(np.array([curve.flat_tokens - BLOCK]))[0])
    assert kept >= 0.95 * one.hits().sum() > less


@given(prompts)
def test_who_begins_with_a_whole_prompt_follows_it(made: list[str]) -> None:
    """Links as the old way finds them: every pair of requests, looked at one by one."""
    shared = shared_of(table(made))
    assert shared is not None
    links = by_blocks(shared, len(made))
    ends = [p for p in made if p]
    parent = {}
    for now, prompt in enumerate(made):
        fits = [
            (len(made[j]), j)
            for j in range(now)
            if made[j] and prompt.startswith(made[j]) and ends.count(made[j]) <= 3
        ]
        if fits:
            parent[now] = max(fits)[1]
    roots = []
    for now in range(len(made)):
        roots.append(roots[parent[now]] if now in parent else now)
    if links is None:
        assert not ends
        return
    same = {(a, b) for a in range(len(made)) for b in range(a) if roots[a] == roots[b]}
    found = links.session
    assert {(a, b) for a in range(len(made)) for b in range(a) if found[a] == found[b]} == same


@given(prompts)
def test_generations_count_the_line_of_descent(made: list[str]) -> None:
    trie = tree(made)
    one = one_cache(trie)
    none = np.zeros(len(trie.tokens), dtype=bool)
    found = kernels.generations(trie.offsets, trie.nodes, one.last, none)
    used: dict[str, int] = {}
    turns: list[int] = []
    for now, prompt in enumerate(made):
        seen = [b for b in chain(prompt) if b in used]
        turns.append(1 + turns[used[seen[-1]]] if seen else 1)
        used.update(dict.fromkeys(chain(prompt), now))
    assert found.tolist() == turns


def test_the_nearest_replica_has_the_prefix_and_common_heads_draw_nobody() -> None:
    talk = ["sa", "sb", "sc", "sd", "saa", "sbb", "scc", "sdd", "saaa", "sbbb"]
    trie = tree(talk)
    where = kernels.nearest(
        trie.offsets, trie.nodes, trie.tokens, trie.inputs, trie.common(0.5), 4, 0.0
    )
    assert sorted(where[:4].tolist()) == [0, 1, 2, 3]
    assert where[4:8].tolist() == where[:4].tolist()
    assert where[8:].tolist() == where[:2].tolist()
    drawn = kernels.nearest(
        trie.offsets, trie.nodes, trie.tokens, trie.inputs, np.zeros(len(trie.tokens), bool), 4, 0.0
    )
    assert set(drawn.tolist()) == {0}
    # Half of a prompt must have been there to be a reason: "sa" has only its head in common.
    strict = kernels.nearest(
        trie.offsets, trie.nodes, trie.tokens, trie.inputs, np.zeros(len(trie.tokens), bool), 4, 0.6
    )
    assert sorted(strict[:4].tolist()) == [0, 1, 2, 3]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60))
def test_dense_numbers_come_in_order_of_appearance(values: list[int]) -> None:
    codes, n = kernels.dense(np.array(values, dtype=np.uint64))
    known: dict[int, int] = {}
    assert codes.tolist() == [known.setdefault(v, len(known)) for v in values]
    assert n == len(known)


def test_ids_made_to_collide_do_not() -> None:
    """A table with known places would need 10**10 steps for these."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    ids = np.array([k * inverse % 2**64 for k in range(200_000)], dtype=np.uint64)
    codes, n = kernels.dense(ids)
    assert n == 200_000
    assert (codes == np.arange(200_000)).all()


def test_files_that_number_blocks_from_zero_share_nothing() -> None:
    first, second = table(["ab", "abc"]), table(["ab", "ad", "abc"])
    two = pl.concat([first, second]).with_columns(source=pl.Series([0, 0, 1, 1, 1]))
    shared = shared_of(two)
    assert shared is not None
    assert shared.one.hits().tolist() == [0, 32, 0, 16, 32]
    # Where ids agree on what comes before them, the files are parts of one log.
    parts = table(["ab", "abc", "ab", "abd"]).with_columns(source=pl.Series([0, 0, 1, 1]))
    together = shared_of(parts)
    assert together is not None
    assert together.one.hits().tolist() == [0, 32, 32, 32]


def test_ids_that_name_only_their_own_block_are_chained() -> None:
    """The second prompt begins otherwise: what follows is another context, though ids are equal."""
    frame = table(["abc", "abc"]).with_columns(
        prefix_blocks=pl.Series([[1, 2, 3], [9, 2, 3]], dtype=pl.List(pl.UInt64))
    )
    shared = shared_of(frame)
    assert shared is not None
    assert not shared.chained
    assert shared.one.hits().tolist() == [0, 0]


def test_more_blocks_than_the_length_has_room_for_are_no_prompt() -> None:
    frame = table(["ab", "abcdefgh", "abc"]).with_columns(
        input_tokens=pl.Series([32, 16, 48], dtype=pl.Int64)
    )
    shared = shared_of(frame)
    assert shared is not None
    assert shared.at.tolist() == [0, 2]


def test_a_log_without_blocks_has_no_tree() -> None:
    frame = table(["ab", "abc"])
    assert shared_of(frame.with_columns(prefix_blocks=pl.lit(None, pl.List(pl.UInt64)))) is None
    empty = shared_of(frame.with_columns(prefix_blocks=pl.lit([], pl.List(pl.UInt64))))
    assert empty is not None
    assert empty.one.hits().tolist() == [0, 0]
    assert by_blocks(empty, 2) is None


def test_rows_without_a_length_are_left_out() -> None:
    frame = table(["ab", "abc", "abd"]).with_columns(
        input_tokens=pl.Series([32, None, 48], dtype=pl.Int64)
    )
    shared = shared_of(frame)
    assert shared is not None
    assert shared.at.tolist() == [0, 2]
    assert shared.one.hits().tolist() == [0, 32]


def test_times_do_not_matter_without_a_clock() -> None:
    frame = table(["ab", "ab"]).with_columns(start=pl.lit(None, pl.Int64))
    one: Cached = one_cache(trie_of(frame)[0])
    assert one.hits(ttl_s=1.0).tolist() == [0, 32]

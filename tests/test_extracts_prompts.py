"""Blocks of prompts in logs larger than memory: what was there before is what one machine sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from prompting import BLOCK, ids_of, numbered
from reading import SAMPLES

from ttftdoctor import simulator
from ttftdoctor.choose import Only, kept
from ttftdoctor.engines import Asked, Taken
from ttftdoctor.engines.local import take
from ttftdoctor.errors import TTFTDoctorError, UsageError
from ttftdoctor.extracts import Budget, runs, shared
from ttftdoctor.extracts import spool as spools
from ttftdoctor.extracts.prompts import (
    WAYS,
    Way,
    chained,
    first_of,
    first_references,
    new_blocks,
    with_prompts,
    with_seen,
)
from ttftdoctor.intake import keep, read_log
from ttftdoctor.measure.caches import shared_of
from ttftdoctor.remedies import Settings
from ttftdoctor.study import study

ROOMY = 8 * 2**30
WHO = ("row",)


def rows_of(
    words: list[str], sources: list[int], starts: list[int | None], kind: Way
) -> pl.DataFrame:
    rows = pl.DataFrame(
        {
            "row": range(len(words)),
            "line": range(1, len(words) + 1),
            "source": sources,
            "start": starts,
            "prefix_blocks": ids_of(words, sources, kind),
            "block_tokens": [BLOCK] * len(words),
            # Some have far fewer tokens than blocks: theirs are not believed.
            "input_tokens": [len(w) * (BLOCK - n % 3) + 1 if n % 7 else 1
                             for n, w in enumerate(words)],
        },
        schema_overrides={"prefix_blocks": pl.List(pl.UInt64), "start": pl.Int64},
    )  # fmt: skip
    none = pl.when(pl.col("row") % 5 == 4).then(None)
    return rows.with_columns(none.otherwise(pl.col("prefix_blocks")).alias("prefix_blocks"))


def seen_at_once(rows: pl.DataFrame, order_known: bool) -> dict[int, int | None]:
    """Tokens by row as the tree of all prompts has them; None where no blocks are told."""
    by = ("start", "source", "line") if order_known else ("source", "line")
    ordered = rows.sort(by, nulls_last=True)
    seen = np.zeros(rows.height, dtype=np.int64)
    tree = shared_of(ordered)
    if tree is not None:
        seen[tree.at] = tree.one.hits()
    told = ordered["prefix_blocks"].is_not_null()
    return {
        row: int(n) if known else None
        for row, n, known in zip(ordered["row"], seen, told, strict=True)
    }


def seen_in_parts(
    rows: pl.DataFrame, order_known: bool, hands: list[int], again: list[int]
) -> dict[int, int | None]:
    """The same by parts: dealt out, and their first references put together in two steps."""
    rows = with_prompts(rows)
    dealt = rows.with_columns(pl.Series("hand", [hands[n % len(hands)] for n in rows["row"]]))
    parts = [part.drop("hand") for part in dealt.partition_by("hand", maintain_order=True)]
    for way in WAYS:
        every = pl.concat([first_references(part, way, WHO, order_known) for part in parts])
        places = pl.Series("hand", [again[n % len(again)] for n in range(every.height)])
        some = [
            first_of(part.drop("hand"), WHO)
            for part in every.with_columns(places).partition_by("hand")
        ]
        found = first_of(pl.concat([every.clear(), *some]), WHO)
        if chained(found):
            break
    seen = with_seen(rows.join(new_blocks(found, WHO), on="row", how="left"))
    return dict(seen.select("row", "seen_tokens").iter_rows())


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    words=st.lists(st.text("abc", max_size=6), min_size=1, max_size=16),
    kind=st.sampled_from(WAYS),
    order_known=st.booleans(),
)
def test_parts_see_what_the_whole_sees(
    data: st.DataObject, words: list[str], kind: Way, order_known: bool
) -> None:
    """For any dealing of rows, any order of their starts, and whatever ids stand for."""
    n = len(words)
    sources = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    moment = st.one_of(st.none(), st.integers(0, 5))
    starts = data.draw(st.lists(moment, min_size=n, max_size=n))
    hands, again = (data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9)) for _ in "ab")
    rows = rows_of(words, sources, starts, kind)
    assert seen_in_parts(rows, order_known, hands, again) == seen_at_once(rows, order_known)


# ------------------------------------------------------------------- the whole way


def taken(*logs: Path | str, rows: int) -> Taken:
    return take(Asked(tuple(map(str, logs)), budget=Budget(ROOMY, most_rows=rows)))


def both(*logs: Path | str, rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of an extract, and that of all rows."""
    part = taken(*logs, rows=rows)
    assert part.whole is not None
    made, _ = study(part.log, "log", Settings(), draw=False, whole=part.whole)
    whole, _ = study(read_log([*map(str, logs)]), "log", Settings(), draw=False)
    return made.to_dict(), whole.to_dict()


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Modelled services whose logs have the blocks of their prompts."""
    out = {}
    for name in ("eviction_expiry", "busting_each_turn"):
        path = out[name] = tmp_path_factory.mktemp("blocks") / f"{name}.jsonl"
        simulator.write_log(simulator.serve(simulator.load(name), seed=0), str(path), "blocks")
    return out


@pytest.mark.parametrize("name", ["eviction_expiry", "busting_each_turn"])
def test_tokens_by_content_are_those_of_all_prompts(blocks: dict[str, Path], name: str) -> None:
    part, whole = both(blocks[name], rows=500)
    assert part["extract"]["requests"] < part["extract"]["of"]
    assert part["verdict"]["primary_cause"] == whole["verdict"]["primary_cause"]
    mine, all_ = part["repeated_prefix"], whole["repeated_prefix"]
    assert mine["grade"] == "content"
    for figure in ("input_tokens", "repeated_tokens", "cached_tokens", "recomputed_tokens",
                   "recomputed_share", "bounds", "basis"):  # fmt: skip
        assert mine[figure] == all_[figure], figure
    if name == "eviction_expiry":
        assert mine["prefill_seconds_wasted"] == pytest.approx(
            all_["prefill_seconds_wasted"], rel=0.05
        )
    assert any("counted over the whole log" in text for text in part["warnings"])


def test_pieces_of_any_size_see_the_same(
    blocks: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, buckets of references and rows with few at a time have the same figures."""
    path = blocks["eviction_expiry"]
    roomy = both(path, rows=500)[0]
    monkeypatch.setattr(shared, "REFERENCE_BYTES", ROOMY // 4 // 700)
    monkeypatch.setattr(spools, "FILE_ROWS", 200)
    monkeypatch.setattr(spools, "BUCKETS", 3)
    monkeypatch.setattr(shared, "PARTS", 5)
    assert both(path, rows=500)[0] == roomy


@pytest.mark.parametrize(("kind", "files"), [("kept", 2), ("by_source", 2), ("made", 1)])
def test_what_ids_stand_for_is_found_out(tmp_path: Path, kind: Way, files: int) -> None:
    """Those of two files contradict each other; others name but the text of their block."""
    paths = numbered(tmp_path, kind, files)
    part, whole = both(*paths, rows=40)
    way = taken(*paths, rows=40).whole
    assert way is not None
    assert way.way == kind
    for figure in ("grade", "input_tokens", "repeated_tokens", "bounds"):
        assert part["repeated_prefix"][figure] == whole["repeated_prefix"][figure]
    note = "the ids of prompt blocks do not chain; ids that do were made from them"
    assert (note in part["warnings"]) == (kind == "made")


def test_blocks_that_are_not_believed_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = {"ttft_ms": 90, "input_tokens": 3, "prefix_blocks": [*range(90)], "block_tokens": BLOCK}
    path.write_text("\n".join(json.dumps({**row, "timestamp": n}) for n in range(30)))
    part, whole = both(path, rows=20)
    assert part["repeated_prefix"] == whole["repeated_prefix"]
    found = taken(path, rows=20).whole
    assert found is not None
    assert found.way is None


def test_chosen_rows_keep_their_blocks(blocks: dict[str, Path], tmp_path: Path) -> None:
    """Also in a state; what is chosen by blocks needs all of them at once, which is said."""
    path = str(blocks["eviction_expiry"])
    only = Only(where="turn > 3")
    log = kept(read_log([path]), only)
    asked = Asked((path,), budget=Budget(ROOMY, most_rows=log.requests.height + 1))
    found = take(asked, only)
    assert found.whole is None
    assert_frame_equal(found.log.requests.sort("line"), log.requests.sort("line"))
    state = tmp_path / "some.state"
    take(Asked((path,), budget=Budget(ROOMY, most_rows=300)), None, str(state))
    assert_frame_equal(
        read_log([str(state)]).requests, read_log([path]).requests.sort("source", "line")
    )
    with pytest.raises(UsageError, match="`repeated`"):
        take(asked, Only(where="repeated > 500"))


def test_long_prompts_leave_room_for_fewer_rows() -> None:
    """Memory is that of the rows that are held: with blocks where these must name sessions."""
    path = SAMPLES / "mooncake.jsonl"
    found = taken(path, rows=20)
    assert found.log.requests["prefix_blocks"].null_count() == 0
    part, whole = both(path, rows=20)
    assert part["repeated_prefix"] == whole["repeated_prefix"]


def test_ids_of_requests_name_no_sessions(tmp_path: Path, blocks: dict[str, Path]) -> None:
    """Then sessions are looked for by the blocks of the prompts, as where none is named."""
    rows = [json.loads(line) for line in blocks["eviction_expiry"].read_text().splitlines()]
    path = tmp_path / "log.jsonl"
    named = [{**row, "session_id": f"s{n}", "turn": None} for n, row in enumerate(rows)]
    path.write_text("\n".join(map(json.dumps, named)))
    found = taken(path, rows=1200)
    assert found.whole is not None
    assert found.log.requests["prefix_blocks"].null_count() == 0
    part, whole = both(path, rows=1200)
    assert part["evidence"]["session"] == whole["evidence"]["session"] == "linked"
    assert part["verdict"]["primary_cause"] == whole["verdict"]["primary_cause"]


def test_the_largest_id_chains_like_any_other() -> None:
    rows = rows_of(["ab", "b", "ab", "b", "ab"], [0] * 5, [None] * 5, "kept")
    ids = [[2**64 - 1, 5, 6], [5, 6], [2**64 - 1, 5, 6], [5, 6], None]
    rows = rows.with_columns(
        pl.Series("prefix_blocks", ids, dtype=pl.List(pl.UInt64)), input_tokens=pl.lit(90)
    )
    assert seen_in_parts(rows, False, [0], [0]) == seen_at_once(rows, False)
    twice = [[5, 5], [7, 5], [5, 5], [7], None]
    rows = rows.with_columns(pl.Series("prefix_blocks", twice, dtype=pl.List(pl.UInt64)))
    assert seen_in_parts(rows, False, [0, 1], [0]) == seen_at_once(rows, False)


def test_cached_tokens_are_those_of_all_rows_where_no_session_is_named(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1.8e9 + n, "ttft_ms": 90 + n % 7, "input_tokens": 900 + n % 31,
         "cached_tokens": n % 500, "output_tokens": 9}
        for n in range(600)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    part, whole = both(path, rows=200)
    assert part["repeated_prefix"]["cached_tokens"] == sum(row["cached_tokens"] for row in rows)
    assert part["repeated_prefix"]["cached_tokens"] == whole["repeated_prefix"]["cached_tokens"]


def test_blocks_of_failed_requests_keep_nobody_from_choosing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        {"timestamp": 1.8e9 + n, "ttft_ms": 90, "input_tokens": 90 + 10 * n,
         "session_id": f"s{n % 9}", "block_tokens": BLOCK,
         "status": "error" if n % 5 == 0 else "ok",
         "prefix_blocks": [1, 2, n] if n % 5 == 0 else None}
        for n in range(90)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    found = take(
        Asked((str(path),), budget=Budget(ROOMY, most_rows=50)), Only(where="repeated > 0")
    )
    assert found.log.requests.height


def test_long_prompts_are_worked_on_few_at_a_time(tmp_path: Path) -> None:
    """Files and states are cut by bytes, so that a piece of them is all that is read."""
    pq = pytest.importorskip("pyarrow.parquet")
    long = pl.Series("prefix_blocks", [list(range(20_000))] * 300, dtype=pl.List(pl.UInt64))
    rows = pl.DataFrame({"line": range(300), "prefix_blocks": long})
    folder = runs.Folder()
    path = folder.write(rows, "rows")
    groups = pq.ParquetFile(path).metadata
    assert groups.num_row_groups > 4
    folder.close()
    assert not path.parent.exists()
    with pytest.raises(TTFTDoctorError, match="no room on disk"):
        folder.write(rows, "rows")
    log = read_log([str(SAMPLES / "mooncake.jsonl")])
    many = log.requests.clear().vstack(log.requests.head(1)).with_columns(long.head(1))
    keep(replace(log, requests=pl.concat([many] * 1500)), str(tmp_path / "one.state"))
    assert pq.ParquetFile(tmp_path / "one.state").metadata.num_row_groups > 4

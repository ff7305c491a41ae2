"""Logs whose prompts are known, and of which the ids of blocks mean one thing or another."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from ttftdoctor.extracts.prompts import Way

BLOCK = 16


def ids_of(words: list[str], sources: list[int], kind: Way) -> list[list[int]]:
    """Prompts are words over three letters, of which every beginning is a block.

    Ids chain; or those of each file do, which numbers its own; or they only name a block's text.
    """
    known: defaultdict[int, dict[str, int]] = defaultdict(dict)
    out = []
    for word, source in zip(words, sources, strict=True):
        ends = range(1, len(word) + 1)
        if kind == "made":
            out.append(["abc".index(word[end - 1]) for end in ends])
            continue
        mine = known[source if kind == "by_source" else 0]
        out.append([mine.setdefault(word[:end], len(mine)) for end in ends])
    return out


def numbered(folder: Path, kind: Way, files: int, rows: int = 60) -> list[Path]:
    """Logs of prompts that grow, without sessions; all of them have blocks in common."""
    # Each file begins with another prompt, so that each one numbers them in another order.
    lengths = [1 + (n + n // rows) % 6 for n in range(files * rows)]
    words = ["".join("abc"[(n + k) % 3] for k in range(many)) for n, many in enumerate(lengths)]
    ids = ids_of(words, [n // rows for n in range(len(words))], kind)
    paths = []
    for file in range(files):
        paths.append(folder / f"{file}.jsonl")
        mine = range(file * rows, (file + 1) * rows)
        lines = [
            {"start": 1.8e9 + n, "input_tokens": BLOCK * len(words[n]), "ttft_ms": 90 + n % 7,
             "output_tokens": 5, "prefix_blocks": ids[n], "block_tokens": BLOCK}
            for n in mine
        ]  # fmt: skip
        paths[-1].write_text("\n".join(map(json.dumps, lines)))
    return paths

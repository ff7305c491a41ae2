"""What prompts share where their blocks are known: every step, in order, spelled once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ttftdoctor.intake import Log
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.caches import Shared
from ttftdoctor.measure.lines import Lines
from ttftdoctor.measure.rows import Index, Rows
from ttftdoctor.prefixes.broken import broken
from ttftdoctor.prefixes.capacity import capacity_curve
from ttftdoctor.prefixes.content import by_content
from ttftdoctor.prefixes.costs import costs_of
from ttftdoctor.prefixes.expiry import expiry_curve
from ttftdoctor.prefixes.ideal import ancestry, definitions
from ttftdoctor.prefixes.ladder import ladder
from ttftdoctor.prefixes.leaders import leaders
from ttftdoctor.prefixes.reconcile import beside_log
from ttftdoctor.prefixes.records import PrefixFindings
from ttftdoctor.prefixes.routing import REPLICAS, routing
from ttftdoctor.prefixes.rungs import Asked, keys_of
from ttftdoctor.prefixes.words import headline, lacking
from ttftdoctor.table import COVERED

if TYPE_CHECKING:
    from ttftdoctor.prices import Till


def exact(
    log: Log, rows: Rows, shared: Shared, asked: Asked, lines: Lines | None, till: Till | None
) -> PrefixFindings:
    """The ladder, the curves and the shared beginnings of a log whose prompts have blocks."""
    at, trie, one = shared.at, shared.trie, shared.one
    session, replica = rows.session[at], _logged_replicas(rows, at)
    walk = by_content(rows, at, trie, one, replica, asked, log.bytes_per_token)
    costs = costs_of(at, asked, lines, till)
    keys = keys_of(rows, at)
    found = ladder(rows.inputs[at], walk.steps, walk.limits, costs, keys)
    counts = (asked.replicas,) if asked.replicas else REPLICAS
    asked_sizes = () if asked.capacity_tokens is None else (asked.capacity_tokens,)

    def place(request: int) -> tuple[str, int]:
        assert rows.place is not None
        source, line = log.requests[["source", "line"]].row(int(rows.place[at[request]]))
        return log.inputs[source].path, line

    breakers, looked_at = broken(
        log, rows, at, one.hits().astype(float), costs, show_text=asked.show_text
    )
    return PrefixFindings(
        grade="content",
        requests=rows.n,
        looked_at=trie.n,
        left_out={} if trie.n == rows.n else {mark("no blocks or no length"): rows.n - trie.n},
        input_tokens=int(trie.inputs.sum()),
        block_tokens=int(np.median(trie.block)) if len(trie.block) else None,
        sessions=rows.session_grade,
        headline=headline(found, breakers, inputs=int(trie.inputs.sum()), exact=True),
        definitions=definitions(trie, one),
        ladder=found,
        capacity=capacity_curve(trie, one, asked.shape, asked_sizes),
        expiry=expiry_curve(trie, one, asked.ttl_s),
        routing=routing(
            trie, one, session, replica, counts if replica is None else (int(replica.max()) + 1,)
        ),
        leaders=leaders(trie, one, session, place, asked.top),
        ancestry=ancestry(trie, one),
        breakers=breakers,
        breakers_says=looked_at,
        notes=() if shared.chained else (
            tr("the ids of prompt blocks do not chain; ids that do were made from them"),
        ),
        reconciled=beside_log(rows, at, walk, keys),
        lacks=lacking(
            found, has_lines=costs.seconds is not None, exact=True,
            sessions=rows.session_grade != "none",
        ),
    )  # fmt: skip


def _logged_replicas(rows: Rows, at: Index) -> Index | None:
    scope = rows.scopes.get("replica")
    if scope is None or len(scope.names) < 2 or (scope.codes[at] >= 0).mean() < COVERED:
        return None
    _, found = np.unique(scope.codes[at], return_inverse=True)
    return found.astype(np.int64)

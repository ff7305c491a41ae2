"""What the prompts of one log share and where it is lost, by the best evidence there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ttftdoctor.intake import Log
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.lines import Lines
from ttftdoctor.measure.rows import Rows
from ttftdoctor.prefixes.costs import costs_of
from ttftdoctor.prefixes.ladder import ladder
from ttftdoctor.prefixes.reconcile import beside_log
from ttftdoctor.prefixes.records import PrefixFindings
from ttftdoctor.prefixes.rungs import Asked, by_counts, keys_of
from ttftdoctor.prefixes.words import headline, lacking
from ttftdoctor.table import COVERED

if TYPE_CHECKING:
    from ttftdoctor.prices import Till


def look(
    log: Log, rows: Rows, asked: Asked, lines: Lines | None = None, till: Till | None = None
) -> PrefixFindings:
    """Say what the prompts of a log share and where it is lost.

    Parameters
    ----------
    rows
        The requests in order (:func:`.measure.rows.prepare`).
    lines
        Fitted cost lines; None where the log has no TTFT.
    till
        Prices, where somebody asked for money.
    """
    shared = rows.shared
    if shared is None or shared.trie.n < COVERED * rows.n:
        return _by_counts(rows, asked, lines, till)
    from ttftdoctor.prefixes.exact import exact  # compiled code: loaded where there are blocks

    return exact(log, rows, shared, asked, lines, till)


def _by_counts(rows: Rows, asked: Asked, lines: Lines | None, till: Till | None) -> PrefixFindings:
    """The coarser ladder of a log without blocks, or what keeps even that from being told."""
    known = np.isfinite(rows.inputs) & np.isfinite(rows.repeated)
    at = np.flatnonzero(known)
    if rows.reuse_grade == "none" or not len(at):
        return PrefixFindings(
            grade="none",
            requests=rows.n,
            looked_at=0,
            left_out={mark("nothing tells what prompts share"): rows.n},
            input_tokens=int(np.nansum(rows.inputs)),
            block_tokens=None,
            sessions=rows.session_grade,
            headline=tr("the log does not tell what its prompts share"),
            lacks=(
                tr(
                    "prompts (messages, prompt), token ids or block hashes would tell exactly; "
                    "session ids with the length of each prompt would tell an upper bound; cached "
                    "tokens would tell what was found"
                ),
            ),
        )
    walk = by_counts(rows, at, asked)
    costs = costs_of(at, asked, lines, till)
    keys = keys_of(rows, at)
    found = ladder(rows.inputs[at], walk.steps, walk.limits, costs, keys)
    return PrefixFindings(
        grade="reported" if rows.cached_logged else "inferred",
        requests=rows.n,
        looked_at=len(at),
        left_out={} if known.all()
        else {mark("no length, or an unknown history"): int((~known).sum())},
        input_tokens=int(rows.inputs[at].sum()),
        block_tokens=None,
        sessions=rows.session_grade,
        headline=headline(found, exact=False),
        ladder=found,
        reconciled=beside_log(rows, at, walk, keys),
        lacks=lacking(
            found, has_lines=costs.seconds is not None, exact=False,
            sessions=rows.session_grade != "none",
        ),
    )  # fmt: skip

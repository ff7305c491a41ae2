"""Logs that are larger than memory: what is counted of all rows, and which rows are looked at.

Of such a log the diagnosis is made of an *extract*: all requests of some stretches of its time,
spread evenly over it, as many as fit. Rows that were in flight when a stretch began belong to it,
so the load that its requests met is that of the whole log. What a row owes to its session (its
turn, the length of the turn before it) is worked out on the whole log before rows are left out
(``facts``). What can be added up exactly is: accounting, tables, tokens (``tally``).

Every step is a function of frames, and the parts of a log add up to the same answer however its
sessions are dealt out; where rows lie, and who runs the steps, is the business of the engines.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttftdoctor.errors import UsageError

MIB = 2**20
#: What a diagnosis takes with hardly any rows: the interpreter, libraries, pieces in the making.
FIXED_BYTES = 400 * MIB
#: ... and with each row: its place in the request table, and the arrays of it.
ROW_BYTES = 1050
#: ... of which its place in the table takes no more than this, or fewer fit.
USUAL_BYTES = 400
#: Less memory than this leaves no room for rows.
LEAST_BYTES = 512 * MIB


@dataclass(frozen=True)
class Budget:
    """How much memory, in bytes, a diagnosis may take.

    With ``most_rows`` no more than so many are looked at, even where more would fit: then the same
    log has the same extract on machines of any size.
    """

    total: int
    most_rows: int | None = None

    def __post_init__(self) -> None:
        if self.total < LEAST_BYTES:
            raise UsageError(
                f"--memory of less than {LEAST_BYTES // MIB} MiB is not enough to work with"
            )

    @property
    def fits(self) -> int:
        """How many rows can be diagnosed at once: the same for any log, so for any engine."""
        fit = (self.total - FIXED_BYTES) // ROW_BYTES
        return fit if self.most_rows is None else min(fit, self.most_rows)

    @property
    def held(self) -> int:
        """Bytes of rows that may be held before they are diagnosed: most have far fewer."""
        return self.total // 4

    def room(self, size: int, rows: int) -> int:
        """How many rows can be diagnosed at once where ``rows`` take so many bytes together.

        In steps of two, so that it hardly depends on how they were put together.
        """
        fits, long = self.fits, size / max(rows, 1) / USUAL_BYTES
        while long > 1:
            fits, long = fits // 2, long / 2
        return max(fits, 1)

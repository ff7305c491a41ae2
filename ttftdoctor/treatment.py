"""What can be done to the patient, as data: a remedy writes it, a replay carries it out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Treatment:
    """What is done to the patient; several may be combined.

    ``reuse``: repeated tokens come from a cache, in whole blocks, as far as the same server had
    them. ``pinned``: sessions stay on the server they began on. ``compact_to``: histories of later
    turns are summarised to this many tokens. ``servers``: times as many servers; ``seqs``: times
    as many slots in each. ``fair``: prefill is shared out instead of first come, first served (who
    waits changes, the total work does not). ``decode_apart``: decoding no longer takes prefill's
    slots or steps. ``shed``: what the peak has beyond the usual rate of new sessions begins at
    other times. The rest take away seconds that were laid to a cause row by row.
    """

    reuse: bool = False
    pinned: bool = False
    compact_to: int | None = None
    servers: float = 1.0
    seqs: float = 1.0
    shed: bool = False
    fair: bool = False
    decode_apart: bool = False
    warm: bool = False
    no_retries: bool = False
    rolled_back: bool = False
    no_constant: bool = False

    @property
    def queues(self) -> bool:
        """Whether it changes who waits, whatever it does to the prompts."""
        return (
            self.servers != 1
            or self.seqs != 1
            or self.shed
            or self.fair
            or self.decode_apart
            or self.pinned
        )

    def join(self, other: Treatment) -> Treatment:
        """Both treatments together."""
        compact = [c for c in (self.compact_to, other.compact_to) if c is not None]
        return Treatment(
            reuse=self.reuse or other.reuse,
            pinned=self.pinned or other.pinned,
            compact_to=min(compact) if compact else None,
            servers=self.servers * other.servers,
            seqs=self.seqs * other.seqs,
            shed=self.shed or other.shed,
            fair=self.fair or other.fair,
            decode_apart=self.decode_apart or other.decode_apart,
            warm=self.warm or other.warm,
            no_retries=self.no_retries or other.no_retries,
            rolled_back=self.rolled_back or other.rolled_back,
            no_constant=self.no_constant or other.no_constant,
        )

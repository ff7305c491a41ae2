"""What can be done to the patient, as data: a remedy writes it, a replay carries it out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Treatment:
    """What is done to the patient; several may be combined.

    ``reuse``: repeated tokens come from a cache, in whole blocks. ``compact_to``: inputs of later
    turns are cut to this many tokens. ``servers``: times as many servers. ``fair``: prefill is
    shared out instead of first come, first served (who waits changes, the total does not).
    ``decode_apart``: decoding no longer takes prefill's slots. The rest take away seconds that
    were laid to a cause row by row.
    """

    reuse: bool = False
    compact_to: int | None = None
    servers: float = 1.0
    fair: bool = False
    decode_apart: bool = False
    warm: bool = False
    no_retries: bool = False
    rolled_back: bool = False
    no_constant: bool = False

    def join(self, other: Treatment) -> Treatment:
        """Both treatments together."""
        compact = [c for c in (self.compact_to, other.compact_to) if c is not None]
        return Treatment(
            reuse=self.reuse or other.reuse,
            compact_to=min(compact) if compact else None,
            servers=self.servers * other.servers,
            fair=self.fair or other.fair,
            decode_apart=self.decode_apart or other.decode_apart,
            warm=self.warm or other.warm,
            no_retries=self.no_retries or other.no_retries,
            rolled_back=self.rolled_back or other.rolled_back,
            no_constant=self.no_constant or other.no_constant,
        )

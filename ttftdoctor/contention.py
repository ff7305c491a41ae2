"""Whether slots and steps taken by decoding are what first tokens wait for."""

from __future__ import annotations

from ttftdoctor.causes import BELIEVED
from ttftdoctor.evidence import Evidence, Wait

#: A step that decodes for others is contention when this part of it grows with their number.
CROWDED = 0.3
#: Up to so many slots, a limit of the client's may be what is seen.
FEW_SLOTS = 8

#: A server that prefills for less than this part of the time has nobody waiting for prefill.
HARDLY_BUSY = 0.1


def at_work(e: Evidence) -> bool:
    """Whether decoding is believed to be what is waited for."""
    w = e.wait
    if w is None or not e.has("e2e_us"):
        return False
    return w.decoding_mean > 0 and strength(w) >= BELIEVED


def strength(w: Wait) -> float:
    """How sure it is that decoding is what is waited for."""
    if w.slots_held and w.after_end is not None:
        sure = 0.6 + 0.3 * (1 - w.after_end / 0.25) + 0.1 * w.slots_capped
        # Without the engine's queue time, few slots and a gate before the server look the same.
        return min(sure, 0.92 if w.logged_mean is not None or w.slots_most > FEW_SLOTS else 0.72)
    part = crowded(w)
    if part is not None and w.steps_mean >= 0.5 * w.decoding_mean:
        return 0.3 + 0.6 * min(part / (2 * CROWDED), 1.0)
    ahead = (w.follows_decoding or 0.0) - (w.follows_backlog or 0.0)
    follows = w.follows_decoding or 0.0
    idle = w.utilisation is not None and w.utilisation < HARDLY_BUSY
    if idle and ahead > 0.1 and follows > 0.85:
        return 0.85  # a server that hardly prefills has no queue of prefill
    if ahead > 0.1 and follows > 0.6 and w.steps_mean < 0.5 * w.decoding_mean:
        return min(0.5 + 0.3 * ahead, 0.75)
    return 0.3


def crowded(w: Wait) -> float | None:
    """The part of a step's time that grows with the number of those who share it."""
    if w.step_s is None or w.step_alone_s is None or w.step_s <= 0:
        return None
    return 1 - w.step_alone_s / w.step_s

"""What is said of a field that no column uses, and that tells slow requests from quick ones."""

from __future__ import annotations

from ttftdoctor.evidence import Splitter
from ttftdoctor.language import tr
from ttftdoctor.units import count, seconds


def told(s: Splitter) -> str:
    """What a field tells, in one sentence."""
    figures = {
        "field": s.field, "value": s.value, "n": count(s.n), "of": count(s.of),
        "more": seconds(s.more_s), "mean": seconds(s.seconds),
    }  # fmt: skip
    if s.kind == "inside":
        return tr(
            "TTFT holds the time of {field}, which is {mean} of the mean ({n} of {of} requests "
            "have some)",
            **figures,
        )
    if s.kind == "above":
        return tr(
            "requests with {field} over {value} are {more} slower ({n} of {of}), {mean} of the "
            "mean",
            **figures,
        )
    if s.kind == "first":
        return tr(
            "the first request of each {field} is {more} slower ({n} of {of}), {mean} of the mean",
            **figures,
        )
    if s.kind == "gone" and s.value == "1":
        return tr(
            "requests with another {field} than the one before are {more} slower ({n} of {of}), "
            "{mean} of the mean",
            **figures,
        )
    if s.kind == "gone":
        return tr(
            "requests whose {field} is not among the {value} used last are {more} slower "
            "({n} of {of}), {mean} of the mean",
            **figures,
        )
    return tr(
        "requests with {field}={value} are {more} slower ({n} of {of}), {mean} of the mean",
        **figures,
    )


def next_step(s: Splitter) -> str:
    """What to do about it."""
    if s.kind == "inside":
        return tr(
            "See what happens in the time of {field}: it passes before the first token.",
            field=s.field,
        )
    if s.kind in ("first", "gone"):
        return tr(
            "See what is loaded, compiled or built when another {field} comes, and prepare it "
            "before requests need it.",
            field=s.field,
        )
    return tr(
        "Send the same prompt with and without that {field} and compare; --map route={field} lets "
        "ttftdoctor judge it as a path.",
        field=s.field,
    )

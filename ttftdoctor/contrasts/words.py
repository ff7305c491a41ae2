"""The sentences and cells of a contrast, shared by whatever prints it. Text passes ``clean``."""

from __future__ import annotations

from collections.abc import Sequence

from ttftdoctor.contrasts.records import Column, Contrasted, Cut, Value
from ttftdoctor.contrasts.select import worded
from ttftdoctor.report import clean
from ttftdoctor.units import count, share

#: Words for the size of Cliff's delta (Romano and others 2006).
_SIZES = ((0.474, "large"), (0.33, "medium"), (0.147, "small"))

#: Of more files only the sums are shown.
MOST_FILES = 6

CAUTION = (
    "This is association, not cause: what differs may come from the same source as what was "
    "selected. ttftdoctor diagnose says why."
)


def headline(c: Contrasted) -> str:
    """The answer in one or two sentences."""
    findings = c.findings
    if not findings:
        judged = sum(1 for column in c.columns if column.role == "same")
        if not judged:
            return "Too few rows, or from too few sessions, to tell a difference from chance."
        compared = "the one column compared does not differ"
        if judged > 1:
            compared = f"none of the {judged} columns compared differs"
        return (
            f"Nothing distinguishes the selected rows: {compared} by more than chance and a "
            "negligible effect."
        )
    own = [f for f in findings if f.column in (c.held.columns if c.held else ())]
    own = own or [findings[0]]
    said = "; then ".join(_stands_out(column, c) for column in own)
    text = f"They stand out by {said}."
    others = [f.column for f in findings if f.through is not None]
    if others:
        verb = "goes" if len(others) == 1 else "go"
        text += f" With {'that' if len(own) == 1 else 'these'} {verb} {_listed(others, 4)}."
    for column in findings:
        told = [v for v in column.values if v.found]
        if told and column not in own and column.through is None:
            text += (
                f" {count(len(told))} value{'s' * (len(told) > 1)} of {clean(column.column)} "
                f"{'have' if len(told) > 1 else 'has'} more than their share "
                f"({share(sum(v.share_selected for v in told))} of the selected, "
                f"{share(sum(v.share_rest for v in told))} of the others)."
            ).replace("has more than their", "has more than its")
    return text


def _stands_out(column: Column, c: Contrasted) -> str:
    if column.kind == "category":
        told = [v for v in column.values if v.found] or list(column.values)
        if not told:
            return clean(column.column)
        v = told[0]
        return (
            f"{clean(column.column)} {value_name(v)} ({share(v.share_selected)} of the selected, "
            f"{share(v.share_rest)} of the others)"
        )
    more = "more" if (column.effect or 0) > 0 else "less"
    if column.unit == "instant":
        more = "later" if more == "more" else "earlier"
    unit = " tokens" if column.unit == "tokens" else ""
    return (
        f"{more} {clean(column.column)} ({cell(column.median_selected, column, c)}{unit} at the "
        f"median against {cell(column.median_rest, column, c)}, a {size(column.effect)} effect)"
    )


def _listed(names: Sequence[str], most: int) -> str:
    shown = [clean(name) for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def size(effect: float | None) -> str:
    """How large an effect is, in a word."""
    for least, word in _SIZES:
        if effect is not None and abs(effect) >= least:
            return word
    return "negligible"


def cell(value: float | None, column: Column, c: Contrasted) -> str:
    """A figure of a column, in its unit."""
    if value is None:
        return "-"
    epoch_us = None if c.epoch_s is None else round(c.epoch_s * 1e6)
    text = worded(value, column.unit, epoch_us)
    return text.replace(" after the first row", "")


def signed(effect: float | None) -> str:
    """An effect with its sign: ``+0.85``."""
    if effect is None:
        return "-"
    return f"{effect:+.2f}".replace("-", "−") if abs(effect) >= 0.005 else "0.00"


def own(column: Column) -> str:
    """What is left of an effect; with a question mark where that may be nothing."""
    text = signed(column.own)
    return f"{text}?" if doubtful(column) else text


def doubtful(column: Column) -> bool:
    """Whether what is left of an effect looks like something, but may be nothing."""
    i = column.own_interval
    large = column.own is not None and abs(column.own) >= 0.1
    return large and (i is None or i[0] <= 0 <= i[1])


def between(interval: tuple[float, float] | None) -> str:
    """An interval of an effect: ``+0.80 to +0.88``."""
    return "-" if interval is None else f"{signed(interval[0])} to {signed(interval[1])}"


def chance(p: float | None) -> str:
    """An adjusted p-value."""
    if p is None:
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def value_name(value: Value) -> str:
    """A value of a category; ``(none)`` for rows without one."""
    return "(none)" if value.value is None else clean(value.value, 80)


def note_of(column: Column, c: Contrasted, *, short: bool) -> str:
    """What qualifies a column's effect."""
    parts = []
    if c.held is not None and column.column in c.held.columns:
        parts.append("held equal" if short else "held equal for the others")
    if column.through is not None:
        parts.append(f"{'with' if short else 'goes with'} {clean(column.through)}")
    if column.after_first_token:
        parts.append("comes later" if short else "known only after the first token")
    if column.kind == "number" and abs(column.known_selected - column.known_rest) >= 0.2:
        known = f"known in {share(column.known_selected)}, {share(column.known_rest)}"
        parts.append(known if short else f"{known} of the rows")
    return "; ".join(parts)


def who(c: Contrasted) -> str:
    """How many rows were selected, and of how many."""
    text = f"{count(c.selected)} of {count(c.rows)} requests selected"
    if c.rows:
        text += f" ({share(c.selected / c.rows)})"
    if c.sessions_selected is not None:
        text += f", from {count(c.sessions_selected)} session{'s' * (c.sessions_selected != 1)}"
    return f"{text}; set against {count(c.rest)}"


def aside(c: Contrasted) -> str:
    """What became of the rows that are on neither side; empty if there are none."""
    parts = []
    if c.undecided:
        verb = "does" if c.undecided == 1 else "do"
        parts.append(f"{count(c.undecided)} {verb} not say what the expression asks for")
    if c.outside:
        parts.append(f"{count(c.outside)} {'is' if c.outside == 1 else 'are'} in neither group")
    return f"Of the other rows {' and '.join(parts)}." if parts else ""


def cut_sentence(cut: Cut, c: Contrasted) -> str:
    """The best single cut: ``input >= 12,300: 81 % of the selected, 4 % of the others``."""
    if cut.bound is None:
        bound = "(none)" if cut.value is None else f'"{clean(cut.value, 80)}"'
    else:
        epoch_us = None if c.epoch_s is None else round(c.epoch_s * 1e6)
        bound = worded(cut.bound, cut.unit, epoch_us)
    return (
        f"{clean(cut.column)} {cut.op} {bound}: {share(cut.share_selected)} of the selected, "
        f"{share(cut.share_rest)} of the others. Of the {count(cut.n)} rows that meet it, "
        f"{share(cut.risk)} are selected."
    )


def telling(c: Contrasted) -> list[tuple[Column, Value]]:
    """Values of categories with more than their share of the selected rows, most telling first."""
    found = [
        (column, value)
        for column in c.columns
        if column.role != "selection"
        for value in column.values
        if value.found
    ]
    return sorted(found, key=lambda pair: pair[1].share_rest - pair[1].share_selected)


def held_sentence(c: Contrasted) -> str:
    """What "own" means here; empty where nothing was held equal."""
    if c.held is None:
        return ""
    names = " and ".join(clean(name) for name in c.held.columns)
    one = len(c.held.columns) == 1
    return (
        f"Effect: from −1 (always less) through 0 to +1 (always more). Own: what is left of it "
        f"among rows alike in {names}{'' if one else ' (for each of these: in the others)'}"
        + ("; ? if that may be nothing." if any(doubtful(x) for x in c.findings) else ".")
    )


def groups(c: Contrasted) -> list[tuple[str, str]]:
    """Columns that are no findings, by why."""
    named: list[tuple[str, str]] = []
    part = [
        f"{clean(x.column)} ({x.why})" if x.why != "selected by it" else clean(x.column)
        for x in c.columns
        if x.role == "selection"
    ]
    if part:
        named.append(("Part of the selection", ", ".join(part)))
    same = [
        f"{clean(x.column)} {signed(x.effect)}" if x.kind == "number" else clean(x.column)
        for x in c.columns
        if x.role == "same"
    ]
    if same:
        named.append(("No difference beyond chance", ", ".join(same)))
    reasons: dict[str, list[str]] = {}
    for x in c.columns:
        if x.role == "unjudged":
            effect = "" if x.effect is None else f" {signed(x.effect)}"
            reasons.setdefault(clean(x.why), []).append(clean(x.column) + effect)
    for why, names in reasons.items():
        named.append((f"Not judged, {why}" if why else "Not judged", ", ".join(names)))
    by_reason: dict[str, list[str]] = {}
    for name, why in c.left_out.items():
        by_reason.setdefault(why, []).append(clean(name))
    if by_reason:
        text = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        named.append(("Left out", text))
    if c.lacking:
        named.append(("Not in this log", ", ".join(c.lacking) + ": would have been compared"))
    return named


def read_sentences(c: Contrasted) -> list[str]:
    """What was read and what became of it."""
    said = []
    if len(c.inputs) > MOST_FILES:
        read = sum(item.rows_read for item in c.inputs)
        used = sum(item.rows_used for item in c.inputs)
        return [
            f"{count(len(c.inputs))} files: {count(read)} rows read = {count(used)} used + "
            f"{count(read - used)} rejected (each file in --json)."
        ]
    for item in c.inputs:
        rejected = sum(item.rows_rejected.values())
        why = ", ".join(f"{clean(r, 120)} {count(n)}" for r, n in item.rows_rejected.items())
        said.append(
            f"{clean(item.path, 300)} ({clean(item.format, 60)}): {count(item.rows_read)} rows "
            f"read = {count(item.rows_used)} used + {count(rejected)} rejected"
            + (f" ({why})" if why else "")
            + "."
        )
    return said


def example_sentence(c: Contrasted) -> str:
    """Where to look: some of the selected rows."""
    many = len({e.path for e in c.examples}) > 1
    parts = []
    for e in c.examples:
        where = f"{clean(e.path, 120)} line {e.line}" if many else f"line {e.line}"
        inside = [] if e.request_id is None else [clean(e.request_id, 60)]
        if e.ttft_s is not None:
            inside.append(worded(e.ttft_s, "s", None))
        parts.append(where + (f" ({', '.join(inside)})" if inside else ""))
    return ", ".join(parts)


def tests_sentence(c: Contrasted) -> str:
    """How chance was kept out."""
    how = {
        "logged": "turns of a session counted together",
        "linked": "turns of a linked session counted together",
        "none": "every row counted by itself, as sessions are unknown",
    }[c.sessions]
    return (
        f"{count(c.tests)} tests, {how}; p-values are Holm's for all of them. A finding needs 0.05 "
        "or less and an effect of 0.147 or more, or a value with a lift of 1.5 (a rare one: 3)."
    )

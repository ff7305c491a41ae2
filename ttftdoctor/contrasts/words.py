"""The sentences and cells of a contrast, shared by whatever prints it. Text passes ``clean``."""

from __future__ import annotations

from collections.abc import Sequence

from ttftdoctor.contrasts.records import ITSELF, Column, Contrasted, Cut, Value
from ttftdoctor.contrasts.select import worded
from ttftdoctor.language import listed, mark, tr, tr_n
from ttftdoctor.report import clean
from ttftdoctor.units import count, seconds, share

#: Words for the size of Cliff's delta (Romano and others 2006).
_SIZES = ((0.474, mark("large")), (0.33, mark("medium")), (0.147, mark("small")))

_TOLD_OF = {
    "more": mark("more {column} ({selected} at the median against {rest}, a {size} effect)"),
    "less": mark("less {column} ({selected} at the median against {rest}, a {size} effect)"),
    "later": mark("later {column} ({selected} at the median against {rest}, a {size} effect)"),
    "earlier": mark("earlier {column} ({selected} at the median against {rest}, a {size} effect)"),
}
_COUNTED = {
    "logged": mark("turns of a session counted together"),
    "linked": mark("turns of a linked session counted together"),
    "none": mark("every row counted by itself, as sessions are unknown"),
}

#: Of more files only the sums are shown.
MOST_FILES = 6

CAUTION = mark(
    "This is association, not cause: what differs may come from the same source as what was "
    "selected. ttftdoctor diagnose says why."
)


def headline(c: Contrasted) -> str:
    """The answer in one or two sentences."""
    findings = c.findings
    if not findings:
        judged = sum(1 for column in c.columns if column.role == "same")
        if not judged:
            return tr("Too few rows, or from too few sessions, to tell a difference from chance.")
        return tr_n(
            "Nothing distinguishes the selected rows: the one column compared does not differ by "
            "more than chance and a negligible effect.",
            "Nothing distinguishes the selected rows: none of the {n} columns compared differs by "
            "more than chance and a negligible effect.",
            judged,
            n=judged,
        )
    own = [f for f in findings if f.column in (c.held.columns if c.held else ())]
    own = own or [findings[0]]
    said = tr("; then ").join(_stands_out(column, c) for column in own)
    text = tr("They stand out by {said}.", said=said)
    others = [f.column for f in findings if f.through is not None]
    if others:
        n, names = len(others), _listed(others, 4)
        if len(own) == 1:
            text += tr_n(" With that goes {names}.", " With that go {names}.", n, names=names)
        else:
            text += tr_n(" With these goes {names}.", " With these go {names}.", n, names=names)
    for column in findings:
        told = [v for v in column.values if v.found]
        if told and column not in own and column.through is None:
            text += tr_n(
                " {n} value of {column} has more than its share ({selected} of the selected, "
                "{rest} of the others).",
                " {n} values of {column} have more than their share ({selected} of the selected, "
                "{rest} of the others).",
                len(told),
                n=count(len(told)), column=clean(column.column),
                selected=share(sum(v.share_selected for v in told)),
                rest=share(sum(v.share_rest for v in told)),
            )  # fmt: skip
    return text


def _stands_out(column: Column, c: Contrasted) -> str:
    if column.kind == "category":
        told = [v for v in column.values if v.found] or list(column.values)
        if not told:
            return clean(column.column)
        v = told[0]
        return tr(
            "{column} {value} ({selected} of the selected, {rest} of the others)",
            column=clean(column.column), value=value_name(v), selected=share(v.share_selected),
            rest=share(v.share_rest),
        )  # fmt: skip
    way = "more" if (column.effect or 0) > 0 else "less"
    if column.unit == "instant":
        way = "later" if way == "more" else "earlier"
    selected = cell(column.median_selected, column, c)
    if column.unit == "tokens":
        selected = tr("{n} tokens", n=selected)
    return tr(
        _TOLD_OF[way],
        column=clean(column.column), selected=selected,
        rest=cell(column.median_rest, column, c), size=size(column.effect),
    )  # fmt: skip


def _listed(names: Sequence[str], most: int) -> str:
    shown = [clean(name) for name in names[:most]]
    if len(names) > most:
        shown.append(tr("{n} more", n=len(names) - most))
    return listed(shown)


def size(effect: float | None) -> str:
    """How large an effect is, in a word."""
    for least, word in _SIZES:
        if effect is not None and abs(effect) >= least:
            return tr(word)
    return tr("negligible")


def cell(value: float | None, column: Column, c: Contrasted) -> str:
    """A figure of a column, in its unit."""
    if value is None:
        return "-"
    if column.unit == "instant" and c.epoch_s is None:
        return seconds(value)  # after the first row, as is plain from the others
    epoch_us = None if c.epoch_s is None else round(c.epoch_s * 1e6)
    return worded(value, column.unit, epoch_us)


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
    if interval is None:
        return "-"
    return tr("{low} to {high}", low=signed(interval[0]), high=signed(interval[1]))


def chance(p: float | None) -> str:
    """An adjusted p-value."""
    if p is None:
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def value_name(value: Value) -> str:
    """A value of a category; ``(none)`` for rows without one."""
    return tr("(none)") if value.value is None else clean(value.value, 80)


def note_of(column: Column, c: Contrasted, *, short: bool) -> str:
    """What qualifies a column's effect."""
    parts = []
    if c.held is not None and column.column in c.held.columns:
        parts.append(tr("held equal") if short else tr("held equal for the others"))
    if column.through is not None:
        name = clean(column.through)
        parts.append(
            tr("with {column}", column=name) if short else tr("goes with {column}", column=name)
        )
    if column.after_first_token:
        parts.append(tr("comes later") if short else tr("known only after the first token"))
    if column.kind == "number" and abs(column.known_selected - column.known_rest) >= 0.2:
        selected, rest = share(column.known_selected), share(column.known_rest)
        parts.append(
            tr("known in {selected}, {rest}", selected=selected, rest=rest)
            if short
            else tr("known in {selected}, {rest} of the rows", selected=selected, rest=rest)
        )
    return tr("; ").join(parts)


def who(c: Contrasted) -> str:
    """How many rows were selected, and of how many."""
    n, every = count(c.selected), count(c.rows)
    text = tr("{n} of {all} requests selected", n=n, all=every)
    if c.rows:
        part = share(c.selected / c.rows)
        text = tr("{n} of {all} requests selected ({part})", n=n, all=every, part=part)
    if c.sessions_selected is None:
        return tr("{selected}; set against {rest}", selected=text, rest=count(c.rest))
    return tr_n(
        "{selected}, from {n} session; set against {rest}",
        "{selected}, from {n} sessions; set against {rest}",
        c.sessions_selected,
        selected=text, n=count(c.sessions_selected), rest=count(c.rest),
    )  # fmt: skip


def aside(c: Contrasted) -> str:
    """What became of the rows that are on neither side; empty if there are none."""
    unsure = tr_n(
        "{n} does not say what the expression asks for",
        "{n} do not say what the expression asks for",
        c.undecided,
        n=count(c.undecided),
    )
    outside = tr_n(
        "{n} is in neither group", "{n} are in neither group", c.outside, n=count(c.outside)
    )
    if c.undecided and c.outside:
        return tr("Of the other rows {one} and {other}.", one=unsure, other=outside)
    if c.undecided or c.outside:
        return tr("Of the other rows {what}.", what=unsure if c.undecided else outside)
    return ""


def cut_sentence(cut: Cut, c: Contrasted) -> str:
    """The best single cut: ``input >= 12,300: 81 % of the selected, 4 % of the others``."""
    if cut.bound is None:
        bound = tr("(none)") if cut.value is None else f'"{clean(cut.value, 80)}"'
    else:
        epoch_us = None if c.epoch_s is None else round(c.epoch_s * 1e6)
        bound = worded(cut.bound, cut.unit, epoch_us)
    return tr(
        "{column} {op} {bound}: {selected} of the selected, {rest} of the others. Of the {n} rows "
        "that meet it, {part} are selected.",
        column=clean(cut.column), op=cut.op, bound=bound, selected=share(cut.share_selected),
        rest=share(cut.share_rest), n=count(cut.n), part=share(cut.risk),
    )  # fmt: skip


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
    names = tr(" and ").join(clean(name) for name in c.held.columns)
    text = tr(
        "Effect: from −1 (always less) through 0 to +1 (always more). Own: what is left of it "
        "among rows alike in {names}",
        names=names,
    )
    if len(c.held.columns) > 1:
        text = tr(
            "Effect: from −1 (always less) through 0 to +1 (always more). Own: what is left of it "
            "among rows alike in {names} (for each of these: in the others)",
            names=names,
        )
    if any(doubtful(x) for x in c.findings):
        return tr("{sentence}; ? if that may be nothing.", sentence=text)
    return tr("{sentence}.", sentence=text)


def groups(c: Contrasted) -> list[tuple[str, str]]:
    """Columns that are no findings, by why."""
    named: list[tuple[str, str]] = []
    part = [
        clean(x.column)
        if x.why == tr(ITSELF)
        else tr("{column} ({why})", column=clean(x.column), why=x.why)
        for x in c.columns
        if x.role == "selection"
    ]
    comma = tr(", ")
    if part:
        named.append((tr("Part of the selection"), comma.join(part)))
    same = [
        f"{clean(x.column)} {signed(x.effect)}" if x.kind == "number" else clean(x.column)
        for x in c.columns
        if x.role == "same"
    ]
    if same:
        named.append((tr("No difference beyond chance"), comma.join(same)))
    reasons: dict[str, list[str]] = {}
    for x in c.columns:
        if x.role == "unjudged":
            effect = "" if x.effect is None else f" {signed(x.effect)}"
            reasons.setdefault(clean(x.why), []).append(clean(x.column) + effect)
    for why, names in reasons.items():
        name = tr("Not judged, {why}", why=why) if why else tr("Not judged")
        named.append((name, comma.join(names)))
    by_reason: dict[str, list[str]] = {}
    for name, why in c.left_out.items():
        by_reason.setdefault(why, []).append(clean(name))
    if by_reason:
        text = tr("; ").join(
            tr("{columns} ({why})", columns=comma.join(names), why=why)
            for why, names in by_reason.items()
        )
        named.append((tr("Left out"), text))
    if c.lacking:
        text = tr("{columns}: would have been compared", columns=comma.join(c.lacking))
        named.append((tr("Not in this log"), text))
    return named


def read_sentences(c: Contrasted) -> list[str]:
    """What was read and what became of it."""
    said = []
    if len(c.inputs) > MOST_FILES:
        read = sum(item.rows_read for item in c.inputs)
        used = sum(item.rows_used for item in c.inputs)
        return [
            tr(
                "{n} files: {read} rows read = {used} used + {rejected} rejected (each file in "
                "--json).",
                n=count(len(c.inputs)), read=count(read), used=count(used),
                rejected=count(read - used),
            )
        ]  # fmt: skip
    for item in c.inputs:
        rejected = sum(item.rows_rejected.values())
        text = tr(
            "{file} ({format}): {read} rows read = {used} used + {rejected} rejected",
            file=clean(item.path, 300), format=clean(item.format, 60),
            read=count(item.rows_read), used=count(item.rows_used), rejected=count(rejected),
        )  # fmt: skip
        why = tr(", ").join(f"{clean(r, 120)} {count(n)}" for r, n in item.rows_rejected.items())
        said.append(
            tr("{read} ({why}).", read=text, why=why) if why else tr("{sentence}.", sentence=text)
        )
    return said


def example_sentence(c: Contrasted) -> str:
    """Where to look: some of the selected rows."""
    many = len({e.path for e in c.examples}) > 1
    parts = []
    for e in c.examples:
        where = tr("line {line}", line=e.line)
        if many:
            where = tr("{file} line {line}", file=clean(e.path, 120), line=e.line)
        inside = [] if e.request_id is None else [clean(e.request_id, 60)]
        if e.ttft_s is not None:
            inside.append(worded(e.ttft_s, "s", None))
        if inside:
            where = tr("{row} ({facts})", row=where, facts=tr(", ").join(inside))
        parts.append(where)
    return tr("{sentence}.", sentence=tr(", ").join(parts))


def tests_sentence(c: Contrasted) -> str:
    """How chance was kept out."""
    return tr(
        "{n} tests, {how}; p-values are Holm's for all of them. A finding needs 0.05 or less and "
        "an effect of 0.147 or more, or a value with a lift of 1.5 (a rare one: 3).",
        n=count(c.tests), how=tr(_COUNTED[c.sessions]),
    )  # fmt: skip

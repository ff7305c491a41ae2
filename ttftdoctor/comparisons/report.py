"""A comparison as text for a terminal, as Markdown and as JSON, from the same sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.comparisons.records import (
    ANSWERS,
    Change,
    Comparison,
    Hindcast,
    Inside,
    Side,
    View,
    figure_name,
    two_lines,
)
from ttftdoctor.diagnosis import Interval
from ttftdoctor.language import listed as listed_words
from ttftdoctor.language import mark, tr, tr_n
from ttftdoctor.report import Severity, Table, as_text, clean, table
from ttftdoctor.report.json_report import text_of
from ttftdoctor.report.markdown import escape, fold, listed
from ttftdoctor.report.markdown import table_of as markdown_table
from ttftdoctor.report.terminal import STYLE, Page, cut, show, wrap
from ttftdoctor.units import (
    count,
    digits,
    figure,
    milliseconds,
    seconds,
    share,
    signed_share,
    tokens,
)

#: The answer in one or two words, and how it is coloured.
BADGES: dict[str, tuple[str, Severity]] = {
    "better": (mark("BETTER"), "good"),
    "worse": (mark("WORSE"), "bad"),
    "no_difference": (mark("NO DIFFERENCE"), "good"),
    "cannot_tell": (mark("CANNOT TELL"), "unknown"),
    "refused": (mark("NOT COMPARED"), "unknown"),
}
_SIGN = {"good": "✅", "warn": "⚠️", "bad": "🔴", "unknown": "❔"}
#: The views as titles.
TITLES: dict[str, str] = {
    "raw": mark("TTFT as logged"),
    "equal_mix": mark("TTFT at equal mix"),
    "equal_mix_and_load": mark("TTFT at equal mix and load"),
}
_MATCH = {"within": mark("right"), "overlaps": mark("near"), "missed": mark("missed")}
_MOVED = {
    "up": mark("up"),
    "down": mark("down"),
    "unchanged": mark("unchanged"),
    "unknown": mark("cannot tell"),
}


@dataclass(frozen=True)
class Section:
    """A heading with a table or with sentences below it; ``totals`` rows at the end are sums."""

    title: str
    table: Table | None = None
    said: tuple[str, ...] = ()
    totals: int = 0


def render_text(comparison: Comparison) -> str:
    """Plain text at 80 columns, without colour and without trailing blanks."""
    return as_text(lambda console: print_to(console, comparison))


def print_to(console: Console, comparison: Comparison) -> None:
    """Print the comparison to a console, at its width."""
    page = _Sheet(console.width, plain=console.options.ascii_only)
    show(console, page.all(comparison))


class _Sheet(Page):
    """The pages of a diagnosis, filled with a comparison."""

    def all(self, c: Comparison) -> list[RenderableType]:
        out = [*self._top(c), Text()]
        for name, lines in first_lists(c):
            out += [self._listed(name, [clean(line) for line in lines], marks=True)]
        if c.warnings:
            n = len(c.warnings)
            told = tr_n("{n} warning, at the end", "{n} warnings, at the end", n, n=n)
            out.append(self._listed(tr("Beware"), [told]))
        for section in sections(c):
            out += self._section(section.title)
            if section.table is not None:
                out.append(self._table(section.table, totals=section.totals, limit=100))
            out += [self._paragraph(clean(line), hang=2) for line in section.said]
        if c.warnings:
            out += self._section(tr("Warnings"))
            out += [self._paragraph(f"! {clean(line)}", hang=2) for line in c.warnings]
        out += self._section(tr("In short"))
        out.append(self._paragraph(clean(c.headline)))
        return out

    def _top(self, c: Comparison) -> list[RenderableType]:
        word, severity = BADGES[c.answer]
        banner = Text()
        banner.append(f"ttftdoctor {clean(c.version, 20)}", style="bold")
        banner.append(f"  {cut(who(c), self.measure - banner.cell_len - 2)}")
        badge = f" {tr(word)} "
        room = self.measure - cell_len(badge) - 1
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(max_width=room, overflow="fold")
        said = wrap(cut(clean(without_word(c)), 4 * self.measure), room)
        grid.add_row(Text(badge, style=STYLE[severity]), Text(said, style="bold"))
        return [banner, Rule(style="dim", characters="─"), grid]


def without_word(c: Comparison) -> str:
    """The headline without the answer, which stands before it already."""
    _, colon, rest = c.headline.partition(tr(": "))
    text = rest if colon else c.headline
    return text[:1].upper() + text[1:]


def who(c: Comparison) -> str:
    """Both sides in a few words."""
    a, b = c.before.population, c.after.population
    return tr(
        "{before} requests before · {after} after",
        before=count(a.requests), after=count(b.requests),
    )  # fmt: skip


def first_lists(c: Comparison) -> list[tuple[str, Sequence[str]]]:
    """What stands right below the answer, each with its name; none of them is empty."""
    lists: list[tuple[str, Sequence[str]]] = [
        (tr("Why"), c.reasons),
        (tr("Inside"), c.said),
        (tr("Predicted"), short_hindcast(c.hindcast)),
    ]
    return [(name, lines) for name, lines in lists if lines]


# --- sections -------------------------------------------------------------------------------------


def sections(c: Comparison) -> list[Section]:
    """Everything below the answer, in order."""
    out = [
        *(_view_section(v) for v in c.views if v.name != "raw"),
        *(_view_section(v) for v in c.views if v.name == "raw"),
    ]
    if c.parts is not None:
        out.append(_parts_section(c))
    if c.inside:
        out.append(_inside_section(c.inside, released=two_lines(c.before, c.after)))
    out.append(_load_section(c.before, c.after))
    if c.hindcast is not None and (c.hindcast.predictions or c.hindcast.notes):
        out.append(_hindcast_section(c.hindcast))
        done = [p for p in c.hindcast.predictions if p.done and p.scores]
        out += [
            Section(
                tr("Predicted and measured: {remedy}", remedy=clean(p.title, 80)),
                table(
                    "scores",
                    "",
                    ("TTFT", tr("before"), tr("predicted"), tr("measured"), tr("error")),
                    (
                        (
                            figure_name(s.metric), seconds(s.before_s), seconds(s.predicted_s),
                            seconds(s.measured_s), signed_share(s.error_share),
                        )
                        for s in p.scores
                    ),
                    note=tr("For the traffic of before. Error: predicted less measured, as a share "
                            "of before's mean."),
                ),
            )
            for p in done
        ]  # fmt: skip
    out.append(Section(tr("What was read"), said=tuple(_read(c))))
    return out


def _view_section(view: View) -> Section:
    note = "" if view.name == "raw" else _compared(view) + smallest_seen(view)
    heading = tr(TITLES[view.name])
    return Section(
        heading,
        table(
            view.name,
            heading,
            ("TTFT", tr("before"), tr("after"), tr("change"), tr("95 % interval"), tr("answer")),
            (_change_row(c) for c in view.changes),
            left=(0, 5),
            note=note,
        ),
    )


def _compared(view: View) -> str:
    """How much of either side the view holds, and what it holds equal."""
    names = [tr(word) for word in view.held if word != "demand"]
    before, after = share(view.covered_before), share(view.covered_after)
    cells, held = count(view.cells), listed_words(names) if names else tr("nothing")
    if "demand" in view.held:
        return tr_n(
            "Compared: {before} of before's requests and {after} of after's, in {n} cell of like "
            "{held} that met like demand (input tokens that arrived in the minute before), "
            "weighted as before.",
            "Compared: {before} of before's requests and {after} of after's, in {n} cells of like "
            "{held} that met like demand (input tokens that arrived in the minute before), "
            "weighted as before.",
            view.cells,
            before=before, after=after, n=cells, held=held,
        )  # fmt: skip
    return tr_n(
        "Compared: {before} of before's requests and {after} of after's, in {n} cell of like "
        "{held}, weighted as before.",
        "Compared: {before} of before's requests and {after} of after's, in {n} cells of like "
        "{held}, weighted as before.",
        view.cells,
        before=before, after=after, n=cells, held=held,
    )  # fmt: skip


def smallest_seen(view: View | None) -> str:
    """What would have been seen, as a sentence that follows another; empty where not known."""
    mean = view.of("mean") if view is not None else None
    if mean is None or mean.smallest_share is None:
        return ""
    return tr(
        " A rise of the mean by {part} would have been seen four times in five.",
        part=share(mean.smallest_share),
    )


def _change_row(c: Change) -> tuple[str, ...]:
    return (
        figure_name(c.metric),
        seconds(c.before_s),
        seconds(c.after_s),
        signed_share(c.share),
        _span(c.interval),
        tr(ANSWERS[c.answer]),
    )


def _span(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    low, high = (signed_share(end) for end in interval)
    return tr("{low} to {high}", low=low, high=high)


def _parts_section(c: Comparison) -> Section:
    assert c.parts is not None
    p = c.parts
    was = c.before.population.ttft_mean_s or 0.0
    rows = [
        (tr("like for like: the same traffic"), p.like_for_like_s),
        *([(tr("other load"), p.load_s)] if p.load_s else []),
        (tr("other traffic: turns and lengths"), p.mix_s),
        (tr("requests without a counterpart"), p.outside_s),
        (tr("raw change of the mean"), p.raw_s),
    ]
    heading = tr("Where the change comes from")
    return Section(
        heading,
        Table(
            "parts",
            heading,
            (tr("part"), tr("mean TTFT"), tr("of before")),
            tuple(
                (name, _signed(value), signed_share(value / was) if was else "-")
                for name, value in rows
            ),
            values=(*(abs(value) for _, value in rows[:-1]), None),
        ),
        totals=1,
    )


def _signed(value: float) -> str:
    if abs(value) < 5e-7:
        return "0"
    return ("+" if value > 0 else "−") + seconds(abs(value))


def _inside_section(inside: tuple[Inside, ...], *, released: bool) -> Section:
    lines = tr("lines are fitted to all of each log")
    if released:
        lines = tr("where a log has a release in it, the line is that of the time before")
    note = _sentence(lines)
    if any(i.equal_mix for i in inside):
        note = tr("Accounts and shares of the input are means at equal mix; {lines}.", lines=lines)
    heading = tr("What changed inside")
    return Section(
        heading,
        table(
            "inside",
            heading,
            ("", tr("before"), tr("after"), tr("moved")),
            (
                (
                    clean(i.title, 60),
                    None if i.before is None else _shown(i.unit)(i.before),
                    None if i.after is None else _shown(i.unit)(i.after),
                    None if i.before is None or i.after is None else tr(_MOVED[i.moved]),
                )
                for i in inside
            ),
            left=(0, 3),
            note=note,
        ),
    )


def _shown(unit: str) -> Callable[[float | None], str]:
    return {"s": seconds, "share": share, "tokens": tokens}.get(unit, milliseconds)


def _load_section(a: Side, b: Side) -> Section:
    rows: list[tuple[str, str | None, str | None]] = []

    def row(name: str, was: float | None, now: float | None, show: Callable[[float], str]) -> None:
        if was is not None or now is not None:
            rows.append(
                (name, None if was is None else show(was), None if now is None else show(now))
            )

    row(tr("requests with a TTFT"), a.population.with_ttft, b.population.with_ttft, count)
    row(tr("sessions"), a.population.sessions, b.population.sessions, count)
    row(tr("arrivals a second"), a.arrivals_per_s, b.arrivals_per_s, figure)
    row(tr("input tokens a second"), a.input_tokens_per_s, b.input_tokens_per_s, figure)
    row(tr("requests in the peak"), a.peak_share, b.peak_share, share)
    row(tr("in flight at arrival, mean"), a.in_flight_mean, b.in_flight_mean, figure)
    row(tr("prefill busy, of the time"), a.utilisation, b.utilisation, share)
    row(tr("replicas"), a.replicas, b.replicas, count)
    heads = ("", tr("before"), tr("after"))
    return Section(tr("Traffic and load"), table("load", "", heads, rows))


def _hindcast_section(h: Hindcast) -> Section:
    said = [_sentence(p.text) for p in h.predictions if p.done]
    said += [
        _sentence(p.mechanism.text) for p in h.predictions if p.done and p.mechanism is not None
    ]
    note = tr("Predicted now, from the log of before. Off by: of before's mean TTFT.")
    if h.source == "document":
        note = tr("Predicted in the diagnosis that was given. Off by: of before's mean TTFT.")
    heading = tr("Was the prediction right?")
    heads = (tr("remedy"), tr("predicted"), tr("interval"), tr("measured"), tr("off by"), "")
    made = (
        table(
            "hindcast",
            heading,
            heads,
            (
                (
                    ("» " if p.done else "") + cut(clean(p.title, 80), 34),
                    None if p.gain_share is None else signed_share(-p.gain_share),
                    None if p.predicted is None else _span((-p.predicted[1], -p.predicted[0])),
                    None if p.measured_share is None else signed_share(-p.measured_share),
                    None
                    if p.gain_share is None or p.measured_share is None
                    else share(abs(p.gain_share - p.measured_share)),
                    tr(_MATCH[p.match]) if p.done and p.match in _MATCH else None,
                )
                for p in h.predictions
            ),
            left=(0, 5),
            note=note,
        )
        if h.predictions
        else None
    )
    return Section(heading, made, (*said, *(_sentence(n) for n in h.notes)))


def _sentence(text: str) -> str:
    return tr("{sentence}.", sentence=text[:1].upper() + text[1:])


def short_hindcast(h: Hindcast | None) -> list[str]:
    """The prediction of what was done, on the first screen."""
    if h is None:
        return []
    out = []
    for p in h.predictions:
        if p.done:
            out.append(tr("{name}: {text}", name=clean(p.title, 80), text=p.text))
            if p.mechanism is not None:
                out.append(p.mechanism.text)
    return out


def _read(c: Comparison) -> list[str]:
    out = []
    for name, side in ((tr("Before"), c.before), (tr("After"), c.after)):
        read = sum(i.rows_read for i in side.inputs)
        used = sum(i.rows_used for i in side.inputs)
        reasons: dict[str, int] = {}
        for record in side.inputs:
            for reason, n in record.rows_rejected.items():
                reasons[reason] = reasons.get(reason, 0) + n
        rejected = sum(reasons.values())
        where = tr(", ").join(clean(i.path, 200) for i in side.inputs[:3])
        if len(side.inputs) > 3:
            where = tr("{files} and {n} more", files=where, n=len(side.inputs) - 3)
        kinds = tr(", ").join(sorted({clean(i.format, 60) for i in side.inputs}))
        text = tr(
            "{side}: {files} ({formats}): {read} rows read = {used} used + {rejected} rejected",
            side=name, files=where, formats=kinds, read=count(read), used=count(used),
            rejected=count(rejected),
        )  # fmt: skip
        why = tr(", ").join(f"{clean(r, 80)} {digits(n)}" for r, n in reasons.items())
        out.append(tr("{read} ({why}).", read=text, why=why) if why else _sentence(text))
        headline = clean(side.headline, 300).rstrip(tr("."))
        cause = clean(side.primary_cause)
        out.append(tr("  diagnosed as {cause}: {headline}.", cause=cause, headline=headline))
    return out


# --- other forms ----------------------------------------------------------------------------------


def render_markdown(c: Comparison) -> str:
    """A comment on a pull request: the answer, and the tables folded below it."""
    word, severity = BADGES[c.answer]
    answer = tr("{name}: {text}", name=tr(word), text=escape(without_word(c)))
    out = [f"### {_SIGN[severity]} {answer}", escape(who(c))]
    out += [f"**{name}**\n\n{listed(lines)}" for name, lines in first_lists(c)]
    if c.warnings:
        name = tr("Warnings")
        out.append(f"**{name}**\n\n{listed(c.warnings)}")
    for section in sections(c):
        body = [markdown_table(section.table, 100)] if section.table is not None else []
        if section.said:
            body.append(listed(line.strip() for line in section.said))
        out.append(fold(escape(section.title), "\n\n".join(body)))
    return "\n\n".join(out) + "\n"


def render_json(c: Comparison) -> str:
    """The ``ttftdoctor.compare/1`` document."""
    return text_of(c.to_dict())


FORMS: dict[str, Callable[[Comparison], str]] = {
    "json": render_json,
    "markdown": render_markdown,
    "terminal": render_text,
}

"""A comparison as text for a terminal, as Markdown and as JSON, from the same sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.comparisons.records import (
    Change,
    Comparison,
    Hindcast,
    Inside,
    Side,
    View,
    two_lines,
)
from ttftdoctor.diagnosis import Interval
from ttftdoctor.report import Severity, Table, as_text, clean, table
from ttftdoctor.report.json_report import text_of
from ttftdoctor.report.markdown import escape, fold, listed
from ttftdoctor.report.markdown import table_of as markdown_table
from ttftdoctor.report.terminal import STYLE, Page, cut, show, wrap
from ttftdoctor.units import count, figure, milliseconds, seconds, share, signed_share, tokens

#: The answer in one or two words, and how it is coloured.
BADGES: dict[str, tuple[str, Severity]] = {
    "better": ("BETTER", "good"),
    "worse": ("WORSE", "bad"),
    "no_difference": ("NO DIFFERENCE", "good"),
    "cannot_tell": ("CANNOT TELL", "unknown"),
    "refused": ("NOT COMPARED", "unknown"),
}
_SIGN = {"good": "✅", "warn": "⚠️", "bad": "🔴", "unknown": "❔"}
_VIEWS = {
    "raw": "TTFT as logged",
    "equal_mix": "TTFT at equal mix",
    "equal_mix_and_load": "TTFT at equal mix and load",
}
_MATCH = {"within": "right", "overlaps": "near", "missed": "missed", "unknown": "-"}
_MOVED = {"up": "up", "down": "down", "unchanged": "unchanged", "unknown": "cannot tell"}


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
        lists = (
            ("Why", c.reasons),
            ("Inside", c.said),
            ("Predicted", short_hindcast(c.hindcast)),
        )
        for name, lines in lists:
            if lines:
                out += [self._listed(name, [clean(line) for line in lines], marks=True)]
        if c.warnings:
            n = len(c.warnings)
            out.append(self._listed("Beware", [f"{n} warning{'s' if n > 1 else ''}, at the end"]))
        for section in sections(c):
            out += self._section(section.title)
            if section.table is not None:
                out.append(self._table(section.table, totals=section.totals, limit=100))
            out += [self._paragraph(clean(line), hang=2) for line in section.said]
        if c.warnings:
            out += self._section("Warnings")
            out += [self._paragraph(f"! {clean(line)}", hang=2) for line in c.warnings]
        out += self._section("In short")
        out.append(self._paragraph(clean(c.headline)))
        return out

    def _top(self, c: Comparison) -> list[RenderableType]:
        word, severity = BADGES[c.answer]
        banner = Text()
        banner.append(f"ttftdoctor {clean(c.version, 20)}", style="bold")
        banner.append(f"  {cut(who(c), self.measure - len(banner) - 2)}")
        mark = f" {word} "
        room = self.measure - len(mark) - 1
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(max_width=room, overflow="fold")
        said = wrap(cut(clean(without_word(c)), 4 * self.measure), room)
        grid.add_row(Text(mark, style=STYLE[severity]), Text(said, style="bold"))
        return [banner, Rule(style="dim", characters="─"), grid]


def without_word(c: Comparison) -> str:
    """The headline without the answer, which stands before it already."""
    _, colon, rest = c.headline.partition(": ")
    text = rest if colon else c.headline
    return text[:1].upper() + text[1:]


def who(c: Comparison) -> str:
    """Both sides in a few words."""
    a, b = c.before.population, c.after.population
    return f"{count(a.requests)} requests before · {count(b.requests)} after"


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
                f"Predicted and measured: {clean(p.title, 80)}",
                table(
                    "scores",
                    "",
                    ("TTFT", "before", "predicted", "measured", "error"),
                    (
                        (
                            s.metric, seconds(s.before_s), seconds(s.predicted_s),
                            seconds(s.measured_s), signed_share(s.error_share),
                        )
                        for s in p.scores
                    ),
                    note="For the traffic of before. Error: predicted less measured, as a share of "
                    "before's mean.",
                ),
            )
            for p in done
        ]  # fmt: skip
    out.append(Section("What was read", said=tuple(_read(c))))
    return out


def _view_section(view: View) -> Section:
    note = ""
    if view.name != "raw":
        held = _and([w for w in view.held if w != "demand"]) or "nothing"
        note = (
            f"Compared: {share(view.covered_before)} of before's requests and "
            f"{share(view.covered_after)} of after's, in {count(view.cells)} "
            f"cell{'' if view.cells == 1 else 's'} of like {held}"
            + (
                " that met like demand (input tokens that arrived in the minute before)"
                if "demand" in view.held
                else ""
            )
            + ", weighted as before."
        )
        mean = view.of("mean")
        if mean is not None and mean.smallest_share is not None:
            note += (
                f" A rise of the mean by {share(mean.smallest_share)} would have been seen four "
                "times in five."
            )
    return Section(
        _VIEWS[view.name],
        table(
            view.name,
            _VIEWS[view.name],
            ("TTFT", "before", "after", "change", "95 % interval", "answer"),
            (_change_row(c) for c in view.changes),
            left=(0, 5),
            note=note,
        ),
    )


def _change_row(c: Change) -> tuple[str, ...]:
    return (
        c.metric,
        seconds(c.before_s),
        seconds(c.after_s),
        signed_share(c.share),
        _span(c.interval),
        c.answer.replace("_", " "),
    )


def _span(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{signed_share(interval[0])} to {signed_share(interval[1])}"


def _parts_section(c: Comparison) -> Section:
    assert c.parts is not None
    p = c.parts
    was = c.before.population.ttft_mean_s or 0.0
    rows = [
        ("like for like: the same traffic", p.like_for_like_s),
        *([("other load", p.load_s)] if p.load_s else []),
        ("other traffic: turns and lengths", p.mix_s),
        ("requests without a counterpart", p.outside_s),
        ("raw change of the mean", p.raw_s),
    ]
    return Section(
        "Where the change comes from",
        Table(
            "parts",
            "Where the change comes from",
            ("part", "mean TTFT", "of before"),
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
    lines = "lines are fitted to all of each log"
    if released:
        lines = "where a log has a release in it, the line is that of the time before"
    return Section(
        "What changed inside",
        table(
            "inside",
            "What changed inside",
            ("", "before", "after", "moved"),
            (
                (
                    clean(i.title, 60),
                    None if i.before is None else _shown(i.unit)(i.before),
                    None if i.after is None else _shown(i.unit)(i.after),
                    None if i.before is None or i.after is None else _MOVED[i.moved],
                )
                for i in inside
            ),
            left=(0, 3),
            note=f"Accounts and shares of the input are means at equal mix; {lines}."
            if any(i.equal_mix for i in inside)
            else f"{lines[0].upper()}{lines[1:]}.",
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

    row("requests with a TTFT", a.population.with_ttft, b.population.with_ttft, count)
    row("sessions", a.population.sessions, b.population.sessions, count)
    row("arrivals a second", a.arrivals_per_s, b.arrivals_per_s, figure)
    row("input tokens a second", a.input_tokens_per_s, b.input_tokens_per_s, figure)
    row("requests in the peak", a.peak_share, b.peak_share, share)
    row("in flight at arrival, mean", a.in_flight_mean, b.in_flight_mean, figure)
    row("prefill busy, of the time", a.utilisation, b.utilisation, share)
    row("replicas", a.replicas, b.replicas, count)
    return Section("Traffic and load", table("load", "", ("", "before", "after"), rows))


def _hindcast_section(h: Hindcast) -> Section:
    said = [p.text[:1].upper() + p.text[1:] + "." for p in h.predictions if p.done]
    said += [
        p.mechanism.text[:1].upper() + p.mechanism.text[1:] + "."
        for p in h.predictions
        if p.done and p.mechanism is not None
    ]
    source = {
        "document": "Predicted in the diagnosis that was given.",
        "before": "Predicted now, from the log of before.",
    }[h.source]
    made = (
        table(
            "hindcast",
            "Was the prediction right?",
            ("remedy", "predicted", "interval", "measured", "off by", ""),
            (
                (
                    ("» " if p.done else "") + cut(clean(p.title, 80), 34),
                    None if p.gain_share is None else signed_share(-p.gain_share),
                    None if p.predicted is None else _span((-p.predicted[1], -p.predicted[0])),
                    None if p.measured_share is None else signed_share(-p.measured_share),
                    None
                    if p.gain_share is None or p.measured_share is None
                    else share(abs(p.gain_share - p.measured_share)),
                    _MATCH[p.match] if p.done else None,
                )
                for p in h.predictions
            ),
            left=(0, 5),
            note=source + " Off by: of before's mean TTFT.",
        )
        if h.predictions
        else None
    )
    return Section(
        "Was the prediction right?", made,
        tuple(said) + tuple(n[:1].upper() + n[1:] + "." for n in h.notes),
    )  # fmt: skip


def short_hindcast(h: Hindcast | None) -> list[str]:
    """The prediction of what was done, on the first screen."""
    if h is None:
        return []
    out = []
    for p in h.predictions:
        if p.done:
            out.append(f"{clean(p.title, 80)}: {p.text}")
            if p.mechanism is not None:
                out.append(p.mechanism.text)
    return out


def _read(c: Comparison) -> list[str]:
    out = []
    for name, side in (("Before", c.before), ("After", c.after)):
        read = sum(i.rows_read for i in side.inputs)
        used = sum(i.rows_used for i in side.inputs)
        reasons: dict[str, int] = {}
        for record in side.inputs:
            for reason, n in record.rows_rejected.items():
                reasons[reason] = reasons.get(reason, 0) + n
        rejected = sum(reasons.values())
        where = ", ".join(clean(i.path, 200) for i in side.inputs[:3])
        if len(side.inputs) > 3:
            where += f" and {len(side.inputs) - 3} more"
        kinds = ", ".join(sorted({clean(i.format, 60) for i in side.inputs}))
        text = (
            f"{name}: {where} ({kinds}): {count(read)} rows read = {count(used)} used + "
            f"{count(rejected)} rejected"
        )
        if reasons:
            text += " (" + ", ".join(f"{clean(r, 80)} {n:,}" for r, n in reasons.items()) + ")"
        out.append(text + ".")
        cause = f"  diagnosed as {clean(side.primary_cause)}"
        out.append(f"{cause}: {clean(side.headline, 300).rstrip('.')}.")
    return out


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


# --- other forms ----------------------------------------------------------------------------------


def render_markdown(c: Comparison) -> str:
    """A comment on a pull request: the answer, and the tables folded below it."""
    word, severity = BADGES[c.answer]
    out = [f"### {_SIGN[severity]} {word}: {escape(without_word(c))}", escape(who(c))]
    lists = (("Why", c.reasons), ("Inside", c.said), ("Predicted", short_hindcast(c.hindcast)))
    out += [f"**{name}**\n\n{listed(lines)}" for name, lines in lists if lines]
    if c.warnings:
        out.append("**Warnings**\n\n" + listed(c.warnings))
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

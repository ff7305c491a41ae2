"""Which sessions computed most again, worst first, with the requests to look up."""

from __future__ import annotations

from ttftdoctor.diagnosis import Diagnosis, SessionWaste
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, figure, rounded
from ttftdoctor.pages.markup import esc, folded, label, table_of
from ttftdoctor.report import Table, clean
from ttftdoctor.units import count, seconds, share, tokens


def by_session(d: Diagnosis) -> Drawing | None:
    """The chart; None where sessions are unknown or hardly anything is computed again."""
    found = d.charts.waste
    if not found:
        return None
    names = [_called(one, at) for at, one in enumerate(found, start=1)]
    places = list(range(len(found)))
    made = figure(
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": places,
                "x": rounded([one.seconds for one in found]),
                "marker": {"color": "@repeated"},
                "customdata": [
                    [label(name, 60), seconds(one.seconds), tokens(one.tokens), count(one.requests)]
                    for name, one in zip(names, found, strict=True)
                ],
                "hovertemplate": tr(
                    "%{customdata[0]}: %{customdata[1]} of prefill for %{customdata[2]} tokens "
                    "computed again<br>%{customdata[3]} requests<extra></extra>"
                ),
            }
        ],
        tr("prefill again, seconds"),
        "",
        height=80 + 24 * len(found),
        bargap=0.3,
        showlegend=False,
        yaxis={
            "autorange": "reversed", "title": {"text": ""}, "tickmode": "array",
            "tickvals": places, "ticktext": [label(_short(name), 24) for name in names],
        },
    )  # fmt: skip
    return Drawing(
        "waste", tr("Waste by session, worst first"), _reading(d), made,
        _table(found, names), wide=True,
    )  # fmt: skip


def _called(one: SessionWaste, at: int) -> str:
    return clean(one.session_id, 80) if one.session_id else tr("session {n}", n=at)


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:9]}…{name[-9:]}"


def _reading(d: Diagnosis) -> str:
    found, whole = d.charts.waste, d.charts.waste_s
    part = sum(one.seconds for one in found)
    text = tr(
        "Of {whole} of prefill for tokens that had been computed before, {part} fall on these {n} "
        "of {all} sessions",
        whole=seconds(whole), part=share(part / whole if whole else None), n=count(len(found)),
        all=count(d.charts.waste_sessions),
    )  # fmt: skip
    if len(found) < d.charts.waste_sessions and part < 0.25 * whole:
        return tr("{text}: it is spread over all of them, not the doing of a few.", text=text)
    return tr("{sentence}.", sentence=text)


def _table(found: tuple[SessionWaste, ...], names: list[str]) -> str:
    """The sessions, each name a link to its requests below."""
    head = "".join(
        f'<th scope="col"{css}>{esc(name)}</th>'
        for name, css in (
            (tr("session"), ' class="l"'),
            (tr("requests"), ""),
            (tr("tokens again"), ""),
            (tr("seconds"), ""),
        )
    )
    rows = "".join(
        f'<tr><td class="l"><a href="#session-{at}">{esc(name, 80)}</a></td>'
        f"<td>{esc(count(one.requests))}</td><td>{esc(tokens(one.tokens))}</td>"
        f"<td>{esc(seconds(one.seconds))}</td></tr>"
        for at, (name, one) in enumerate(zip(names, found, strict=True), start=1)
    )
    caption = esc(tr("Waste by session"))
    whole = (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{caption}"><table>'
        f'<caption class="hidden">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return whole + "".join(
        f'<div class="linked" id="session-{at}">'
        + folded(
            tr("The worst requests of {session}", session=name),
            table_of(_requests(one), named=False),
        )
        + "</div>"
        for at, (name, one) in enumerate(zip(names, found, strict=True), start=1)
    )


def _requests(one: SessionWaste) -> Table:
    rows = tuple(
        (
            clean(row.request_id, 36) if row.request_id else "-",
            "-" if row.line is None else tr("line {n}", n=row.line),
            "-" if row.turn is None else count(row.turn),
            "-" if row.start is None else clean(row.start, 24),
            seconds(row.ttft_s),
            seconds(row.seconds),
        )
        for row in one.rows
    )
    return Table(
        "session",
        tr("Requests of this session"),
        (tr("request"), tr("in the log"), tr("turn"), tr("start"), "TTFT", tr("computed again")),
        rows,
        frozenset({0, 1, 3}),
    )

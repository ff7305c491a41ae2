"""The diagnosis as one page that opens offline, with interactive charts.

Everything is inside the file: style, data and the Plotly bundle. The page's security policy lets
only the two scripts written here run (by their hashes) and lets nothing be fetched. Text from the
log is escaped for HTML, and once more where Plotly would read it as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, LedgerRow, Slice
from ttftdoctor.errors import UsageError
from ttftdoctor.prefixes.charts import charts
from ttftdoctor.prefixes.sections import sections
from ttftdoctor.report import (
    Renderer,
    Table,
    about,
    badge,
    best_remedy,
    cause_table,
    clean,
    confidence,
    cost_sentences,
    findings,
    gain,
    gain_sentence,
    ledger_groups,
    ledger_table,
    missing,
    prefix_sentences,
    primary,
    read_sentences,
    remedies_by_gain,
    remedy_name,
    remedy_table,
    ruled_out,
    saving_sentence,
    scope,
    severity,
    slo_sentence,
    split_tables,
    spread_sentence,
    title,
    turn_by_length,
    who,
    worked_examples,
    worst_table,
)
from ttftdoctor.units import count, milliseconds, seconds, share

ROWS = 200

# One hue for repeated work, one for new work; waiting is hatched, so that print tells them apart.
_ACCOUNT_COLOUR = {
    "fixed": "@fixed",
    "queue_behind_repeated": "@repeated-soft",
    "queue_behind_new": "@new-soft",
    "queue_other": "@other",
    "prefill_repeated": "@repeated",
    "prefill_new": "@new",
    "unexplained": "@unexplained",
}
_HATCH = {"fillmode": "overlay", "size": 5, "solidity": 0.25}


def render(diagnosis: Diagnosis) -> str:
    """The whole page."""
    main = _charts(diagnosis)
    beginnings = _prefix_charts(diagnosis)
    drawn = [*main, *beginnings]
    library = _script_safe(_plotly()) if drawn else ""
    scripts = [s for s in (library, _SCRIPT) if s]
    policy = (
        "default-src 'none'; "
        f"script-src {' '.join(_hash(s) for s in scripts)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    data = {name: figure for name, _, _, figure, _ in drawn}
    body = "\n".join(
        (
            _header(diagnosis),
            _charts_html(main),
            _charts_html(beginnings),
            _breaks(diagnosis),
            _remedies(diagnosis),
            _evidence(diagnosis),
            _splits(diagnosis),
            _worst(diagnosis),
            _causes(diagnosis),
            _read(diagnosis),
        )
    )
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_e(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_e(badge(diagnosis.verdict).capitalize())}: why TTFT is what it is</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="charts">{_json(data)}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def _plotly() -> str:
    """The Plotly bundle, as the installed package ships it."""
    try:
        offline = importlib.import_module("plotly.offline")
    except ModuleNotFoundError as error:
        raise UsageError(
            "the HTML report needs Plotly for its charts",
            why=str(error),
            help="python -m pip install plotly",
        ) from error
    bundle: str = offline.get_plotlyjs()
    return bundle


# --- escaping -------------------------------------------------------------------------------------


def _e(text: object, limit: int = 2_000) -> str:
    """Text for HTML, in an element or in a quoted attribute."""
    return html.escape(clean(text, limit), quote=True)


def _p(text: object, limit: int = 80) -> str:
    """Text for Plotly, which reads tags and entities in its labels."""
    return html.escape(clean(text, limit), quote=False)


def _json(data: object) -> str:
    """JSON that cannot end the script element it stands in; no NaN."""
    text = json.dumps(_finite(data), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _script_safe(script: str) -> str:
    """A script that cannot end its element early."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# --- the top of the page --------------------------------------------------------------------------


def _header(d: Diagnosis) -> str:
    v = d.verdict
    level = severity(v)
    facts = [f"<code>{_e(v.primary_cause)}</code> {_e(title(v.primary_cause))}"]
    if v.primary_cause != "insufficient_data":
        facts.append(_e(confidence(v.confidence)))
        facts.append(_e(scope(v), 600))
    out = [
        f'<header class="verdict {level}">',
        f'<p class="brand">ttftdoctor {_e(d.version, 40)} '
        f"<span>{_e(' · '.join(who(d)), 400)}</span></p>",
        f'<p class="badge">{_e(badge(v))}</p>',
        f"<h1>{_e(v.headline)}</h1>",
        '<ul class="facts">' + "".join(f"<li>{f}</li>" for f in facts) + "</ul>",
        _tiles(d),
        "</header>",
        '<section class="answer">',
        "<div><h2>Why</h2>",
    ]
    finding = primary(d)
    evidence = [s.text for s in finding.evidence] if finding else []
    out.append(_ul((evidence[:5] or prefix_sentences(d)), "evidence"))
    for a in v.amplifiers:
        part = f", {share(a.share_of_ttft)} of TTFT" if a.share_of_ttft is not None else ""
        out.append(
            f'<p class="amplifier"><b>Made worse by</b> <code>{_e(a.id)}</code>{_e(part)}: '
            f"{_e(a.text)}</p>"
        )
    known = {a.id for a in v.amplifiers}
    others = [c for c in v.contributing if c not in known]
    if others:
        names = ", ".join(f"<code>{_e(c)}</code>" for c in others)
        out.append(f'<p class="amplifier"><b>Also</b> {names}</p>')
    remedy = best_remedy(d)
    healthy = v.primary_cause == "healthy"
    out.append('</div>\n<div class="do">')
    if remedy is not None or healthy:
        out.append("<h2>Do first</h2>")
    if remedy is not None:
        out.append(f'<p class="first">{_e(remedy_name(remedy))}</p>')
        out.append(f"<p>{_e(gain_sentence(remedy, d.population.ttft_mean_s))}</p>")
        out.append(_before_after(d.population.ttft_mean_s, remedy.ttft_mean_s))
        if remedy.cost:
            out.append(f'<p class="quiet">Cost: {_e(remedy.cost)}</p>')
    elif healthy:
        out.append("<p>Nothing needs to be done.</p>")
    if v.next_steps:
        out.append("<h3>Next</h3><ol>" if remedy is not None or healthy else "<h2>Next</h2><ol>")
        out += [f"<li>{_e(step)}</li>" for step in v.next_steps]
        out.append("</ol>")
    if v.experiment is not None:
        out.append(f"<h3>To prove it</h3><p>{_e(v.experiment.text)}</p>")
        if v.experiment.command:
            out.append(f"<p><code>{_e(v.experiment.command)}</code></p>")
    want = missing(d) if v.primary_cause == "insufficient_data" else []
    if want:
        names = " ".join(f"<code>{_e(name)}</code>" for name in want)
        out.append(f"<h3>Missing in the log</h3><p>{names}</p>")
    out.append("</div>\n</section>")
    if d.warnings:
        out.append('<section class="warnings"><h2>Warnings</h2>')
        out.append(_ul(d.warnings))
        out.append("</section>")
    return "\n".join(out)


def _tiles(d: Diagnosis) -> str:
    p = d.population
    tiles = [
        ("mean TTFT", seconds(p.ttft_mean_s) if p.ttft_mean_s is not None else None),
        ("p50 TTFT", seconds(p.ttft_p50_s) if p.ttft_p50_s is not None else None),
        ("p95 TTFT", seconds(p.ttft_p95_s) if p.ttft_p95_s is not None else None),
        ("requests", count(p.requests)),
    ]
    again = d.repeated_prefix.recomputed_share
    if again is not None:
        tiles.append(("of prompt tokens computed again", share(again)))
    elif d.repeated_prefix.repeated_tokens is not None and d.repeated_prefix.input_tokens:
        part = d.repeated_prefix.repeated_tokens / d.repeated_prefix.input_tokens
        tiles.append(("of prompt tokens seen before", share(part)))
    if d.slo is not None:
        tiles.append((f"within {seconds(d.slo.target_s)}", share(d.slo.attainment)))
    items = "".join(
        f"<div><dd>{_e(value)}</dd><dt>{_e(name)}</dt></div>" for name, value in tiles if value
    )
    return f'<dl class="tiles">{items}</dl>'


def _before_after(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    top = max(before, after)
    rows = []
    for name, value, css in (("today", before, "now"), ("then", after, "then")):
        width = max(1, round(100 * value / top))
        rows.append(
            f"<div><span>{name}</span>"
            f'<i><b class="{css}" style="width:{width}%"></b></i>'
            f"<span>{_e(seconds(value))}</span></div>"
        )
    return f'<div class="bars" aria-hidden="true">{"".join(rows)}</div>'


def _ul(lines: Iterable[object], css: str = "") -> str:
    items = "".join(f"<li>{_e(line)}</li>" for line in lines)
    return f'<ul class="{css}">{items}</ul>' if css else f"<ul>{items}</ul>"


# --- charts ---------------------------------------------------------------------------------------

_Chart = tuple[str, str, str, dict[str, Any], str]  # id, title, reading, figure, table


def _charts(d: Diagnosis) -> list[_Chart]:
    made = (
        _ledger_chart(d),
        _turn_chart(d),
        _uncached_chart(d),
        _decode_chart(d),
        _remedy_chart(d),
        _load_chart(d),
    )
    return [chart for chart in made if chart is not None]


def _figure(
    traces: Sequence[dict[str, Any]], x: str, y: str, *, height: int = 340, **layout: Any
) -> dict[str, Any]:
    axis = {
        "gridcolor": "@grid",
        "zerolinecolor": "@grid",
        "linecolor": "@grid",
        "automargin": True,
        "fixedrange": False,
    }
    base: dict[str, Any] = {
        "height": height,
        "margin": {"l": 8, "r": 14, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@text"},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@grid", "font": {"color": "@text"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y}, "rangemode": "tozero"},
        "dragmode": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@muted", "activecolor": "@accent"},
    }
    for key, value in layout.items():
        old = base.get(key)
        base[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return {"data": list(traces), "layout": base}


def _line(
    name: str, x: Sequence[Any], y: Sequence[float | None], colour: str, hover: str, **more: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "size": 7},
        "hovertemplate": hover,
        **more,
    }


def _turns(d: Diagnosis) -> list[Slice]:
    rows = [s for s in d.splits.by_turn if isinstance(s.key.get("turn"), (int, float))]
    return sorted(rows, key=lambda s: float(s.key["turn"] or 0))


def _figures(d: Diagnosis, name: str) -> str:
    return "".join(_table(t, named=False) for t in split_tables(d) if t.name == name)


def _turn_chart(d: Diagnosis) -> _Chart | None:
    rows = [s for s in _turns(d) if s.ttft_p50_s is not None]
    if not rows:
        return None
    x = [s.key["turn"] for s in rows]
    notes = [
        [
            count(s.n),
            count(s.input_p50),
            count(s.uncached_p50),
            seconds(s.ttft_p50_s),
            seconds(s.ttft_p95_s),
        ]
        for s in rows
    ]
    hover = (
        "turn %{x}<br>TTFT p50 %{customdata[3]}, p95 %{customdata[4]}<br>"
        "%{customdata[1]} prompt tokens, %{customdata[2]} uncached<br>"
        "%{customdata[0]} requests<extra></extra>"
    )
    traces = [
        _line(
            "p95",
            x,
            [s.ttft_p95_s for s in rows],
            "@muted",
            hover,
            customdata=notes,
            line={"color": "@muted", "width": 1.5, "dash": "dot"},
        ),
        _line("median", x, [s.ttft_p50_s for s in rows], "@accent", hover, customdata=notes),
    ]
    figure = _figure(
        traces, "turn of the conversation", "TTFT, seconds", xaxis=_whole_turns(len(rows))
    )
    return ("by_turn", "TTFT by turn", _turn_reading(rows), figure, _figures(d, "by_turn"))


def _whole_turns(n: int) -> dict[str, Any]:
    return {"dtick": 1} if n <= 12 else {"tickformat": "d"}


def _turn_reading(rows: Sequence[Slice]) -> str:
    first = rows[0]
    # Late turns are few, and those of short chats: the highest well-filled turn tells the growth.
    filled = [r for r in rows if r.n >= 0.05 * first.n] or list(rows)
    last = max(filled, key=lambda r: r.ttft_p50_s or 0.0)
    if last is first:
        last = filled[-1]
    a, b = first.ttft_p50_s or 0.0, last.ttft_p50_s or 0.0
    if len(rows) == 1 or not a:
        return f"The median TTFT is {seconds(a)}; there is one turn only."
    ratio = b / a
    ends = (
        f"from {seconds(a)} at turn {clean(first.key['turn'])} to {seconds(b)} at turn "
        f"{clean(last.key['turn'])}"
    )
    if ratio >= 1.25:
        text = f"The median TTFT grows {ratio:.1f} times, {ends}"
    elif ratio <= 0.8:
        text = f"The median TTFT falls, {ends}"
    else:
        text = f"The median TTFT stays about level, {ends}"
    if first.uncached_p50 is not None and last.uncached_p50 is not None:
        text += (
            f"; uncached tokens go from {count(first.uncached_p50)} to {count(last.uncached_p50)}"
        )
    return text + "."


def _uncached_chart(d: Diagnosis) -> _Chart | None:
    bins = [b for b in d.charts.ttft_by_uncached if b.n > 0]
    points = d.charts.line_points
    if not bins and not points:
        return None
    traces: list[dict[str, Any]] = []
    if bins:
        most = max(b.n for b in bins)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "requests",
                "x": [b.x for b in bins],
                "y": [b.y for b in bins],
                "marker": {
                    "color": "@new",
                    "size": [round(5 + 17 * math.sqrt(b.n / most), 1) for b in bins],
                    "opacity": 0.5,
                    "line": {"width": 0},
                },
                "customdata": [[count(b.n), count(b.x), seconds(b.y)] for b in bins],
                "hovertemplate": "about %{customdata[1]} uncached tokens, %{customdata[2]}<br>"
                "%{customdata[0]} requests<extra></extra>",
            }
        )
    if points:
        x = [p[0] for p in points]
        plain = {"type": "scatter", "mode": "lines", "x": x, "hoverinfo": "skip"}
        traces.append(
            {**plain, "y": [p[2] for p in points], "line": {"width": 0}, "showlegend": False}
        )
        traces.append(
            {
                **plain,
                "y": [p[3] for p in points],
                "line": {"width": 0},
                "fill": "tonexty",
                "fillcolor": "@band",
                "showlegend": False,
            }
        )
        traces.append(
            {
                **plain,
                "y": [p[1] for p in points],
                "name": "fitted, without waiting",
                "line": {"color": "@repeated", "width": 2.5},
                "hoverinfo": "all",
                "customdata": [
                    [count(p[0]), seconds(p[1]), seconds(p[2]), seconds(p[3])] for p in points
                ],
                "hovertemplate": "%{customdata[0]} uncached tokens: %{customdata[1]}"
                "<br>(%{customdata[2]} to %{customdata[3]})<extra></extra>",
            }
        )
    line = d.cost_lines.prefill
    if line is None:
        reading = "The log does not determine a cost per token."
    else:
        reading = (
            f"Each 1,000 uncached tokens cost {milliseconds(line.ms_per_1k_tokens)}, on top of "
            f"{milliseconds(line.fixed_ms)} that every request pays; what lies above the line is "
            "waiting."
        )
    above, top_s = d.charts.ttft_above
    if above:
        reading += f" Above {seconds(top_s)} lie {count(above)} more, which are not drawn."
    figure = _figure(
        traces,
        "uncached prompt tokens",
        "TTFT, seconds",
        xaxis={"rangemode": "tozero", "tickformat": ",d"},
    )
    table = _table(
        Table(
            "line",
            "Fitted line",
            ("uncached tokens", "TTFT", "low", "high"),
            tuple((count(p[0]), seconds(p[1]), seconds(p[2]), seconds(p[3])) for p in points),
            frozenset(),
        ),
        named=False,
    )
    return ("uncached", "TTFT against uncached tokens", reading, figure, table if points else "")


def _decode_chart(d: Diagnosis) -> _Chart | None:
    rows = [s for s in _turns(d) if s.tpot_p50_s is not None]
    if not rows:
        return None
    y = [1e3 * (s.tpot_p50_s or 0.0) for s in rows]
    hover = "turn %{x}<br>%{customdata[0]} per token<br>%{customdata[1]} requests<extra></extra>"
    notes = [[milliseconds(v), count(s.n)] for v, s in zip(y, rows, strict=True)]
    trace = _line("median", [s.key["turn"] for s in rows], y, "@new", hover, customdata=notes)
    figure = _figure(
        [trace],
        "turn of the conversation",
        "ms per token",
        showlegend=False,
        xaxis=_whole_turns(len(rows)),
    )
    change = y[-1] / y[0] - 1 if y[0] else 0.0
    ends = f"{milliseconds(y[0])} at turn {rows[0].key['turn']}, {milliseconds(y[-1])} at turn "
    ends += f"{rows[-1].key['turn']}"
    if abs(change) < 0.1:
        reading = f"Decode is level: {ends}."
        first, last = rows[0].ttft_p50_s, rows[-1].ttft_p50_s
        if first and last and last > 1.25 * first:
            reading += " So the server is not slower in general as TTFT grows."
    elif change > 0:
        reading = f"Decode slows down by {share(change)} along the conversation: {ends}."
    else:
        reading = f"Decode speeds up along the conversation: {ends}."
    if len(rows) == 1:
        reading = f"A token takes {milliseconds(y[0])} at the median."
    return ("decode", "Decode time per token by turn", reading, figure, _figures(d, "by_turn"))


def _ledger_chart(d: Diagnosis) -> _Chart | None:
    groups = ledger_groups(d)
    if not groups:
        return None
    names = [a for a in ACCOUNTS if any(abs(g.accounts.get(a, 0.0)) > 0 for g in groups)]
    labels = [_p(title(g.group)) for g in groups]
    traces = []
    for name in names:
        colour = _ACCOUNT_COLOUR[name]
        marker: dict[str, Any] = {"color": colour, "line": {"color": "@card", "width": 1}}
        if name.startswith("queue"):
            marker["pattern"] = {**_HATCH, "shape": "/", "fgcolor": "@card"}
        if name == "unexplained":
            marker["pattern"] = {**_HATCH, "shape": ".", "fgcolor": "@text"}
        values = [g.accounts.get(name, 0.0) for g in groups]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _p(title(name)),
                "y": labels,
                "x": values,
                "marker": marker,
                "customdata": [
                    [
                        _p(title(name)),
                        seconds(v),
                        share(v / g.ttft_mean_s) if g.ttft_mean_s else "-",
                    ]
                    for v, g in zip(values, groups, strict=True)
                ],
                "hovertemplate": "%{y}: %{customdata[0]}<br>%{customdata[1]}, %{customdata[2]} of "
                "the mean TTFT<extra></extra>",
            }
        )
    figure = _figure(
        traces,
        "mean TTFT, seconds",
        "",
        height=96 + 46 * len(groups),
        barmode="relative",
        bargap=0.35,
        showlegend=False,
        yaxis={"autorange": "reversed", "title": {"text": ""}},
    )
    return (
        "ledger",
        "Where the mean TTFT goes",
        " ".join(filter(None, [_ledger_reading(groups), spread_sentence(d)])),
        figure,
        _legend(names) + _table(ledger_table(d), named=False),
    )


def _legend(names: Sequence[str]) -> str:
    items = "".join(f'<li><i class="k-{_e(name)}"></i>{_e(title(name))}</li>' for name in names)
    return f'<ul class="legend">{items}</ul>'


def _ledger_reading(groups: Sequence[LedgerRow]) -> str:
    by_name = {g.group: g for g in groups}
    whole = by_name.get("all") or groups[0]
    top = max(whole.accounts, key=lambda a: whole.accounts[a], default="")
    text = f"Of the mean {seconds(whole.ttft_mean_s)}"
    if top and whole.ttft_mean_s:
        part = share(whole.accounts[top] / whole.ttft_mean_s)
        text += f", {seconds(whole.accounts[top])} ({part}) is {title(top)}"
    text += "."
    for low, high in (("early_turns", "late_turns"), ("off_peak", "peak")):
        a, b = by_name.get(low), by_name.get(high)
        if a is None or b is None:
            continue
        more = b.ttft_mean_s - a.ttft_mean_s
        if a.ttft_mean_s > 0 and more / a.ttft_mean_s <= -0.1:
            text += f" In {title(high)} the mean is {seconds(-more)} less than in {title(low)}."
            continue
        if a.ttft_mean_s <= 0 or more / a.ttft_mean_s < 0.1:
            text += f" In {title(high)} the mean is about what it is in {title(low)}."
            continue
        grown = {n: b.accounts.get(n, 0.0) - a.accounts.get(n, 0.0) for n in b.accounts}
        most = max(grown, key=lambda n: grown[n])
        text += (
            f" In {title(high)} the mean is {seconds(more)} more than in {title(low)}, "
            f"{share(grown[most] / more)} of that in {title(most)}."
        )
    return text.replace("In peak", "In the peak").replace("in off-peak", "off-peak")


def _remedy_chart(d: Diagnosis) -> _Chart | None:
    today = d.population.ttft_mean_s
    rows = [r for r in remedies_by_gain(d) if r.ttft_mean_s is not None]
    if not rows or today is None:
        return None
    names = ["today", *(remedy_name(r) for r in rows)]
    labels = ["<br>".join(_p(line) for line in _wrapped(name)) for name in names]
    x = [today, *(r.ttft_mean_s for r in rows)]
    notes = [[seconds(today), ""]] + [
        [seconds(r.ttft_mean_s), gain(r.gain_share) if r.gain_share is not None else ""]
        for r in rows
    ]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(names))),
        "x": x,
        "marker": {"color": ["@muted", *("@new" for _ in rows)]},
        "text": [f"{a} ({b})" if b else a for a, b in notes],
        "textposition": "auto",
        "cliponaxis": False,
        "customdata": [[_p(name), *note] for name, note in zip(names, notes, strict=True)],
        "hovertemplate": "%{customdata[0]}<br>mean TTFT %{customdata[1]} %{customdata[2]}"
        "<extra></extra>",
    }
    ticks = {"tickmode": "array", "tickvals": trace["y"], "ticktext": labels}
    figure = _figure(
        [trace],
        "mean TTFT, seconds",
        "",
        height=90 + 48 * len(names),
        bargap=0.3,
        showlegend=False,
        yaxis={**ticks, "autorange": "reversed", "title": {"text": ""}},
    )
    best = rows[0]
    reading = (
        f"{remedy_name(best)}: {gain_sentence(best, today)}. Each bar is the log's own arrivals "
        "served again with that remedy alone; gains must not be added up."
    )
    return ("remedies", "What would help", reading, figure, _table(remedy_table(d), named=False))


def _wrapped(name: str, width: int = 18, most: int = 2) -> list[str]:
    """A label broken into short lines."""
    out, line = [], ""
    for word in name.split():
        if line and len(line) + 1 + len(word) > width:
            out.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    out.append(line)
    cut = [part if len(part) <= width + 4 else part[: width + 3] + "…" for part in out]
    if len(cut) > most:
        cut = [*cut[: most - 1], cut[most - 1].rstrip("…") + "…"]
    return cut


def _load_chart(d: Diagnosis) -> _Chart | None:
    rows = [p for p in d.charts.load if p.get("t") is not None]
    if len(rows) < 2:
        return None
    relative = all(isinstance(p["t"], (int, float)) for p in rows)
    x = [p["t"] if relative else _stamp(p["t"]) for p in rows]
    rows = [p for p, at in zip(rows, x, strict=True) if at is not None]
    x = [at for at in x if at is not None]
    if len(rows) < 2:
        return None
    running = [_float(p.get("running")) for p in rows]
    ttft = [_float(p.get("ttft_p50_s")) for p in rows]
    hover = (
        "%{customdata[0]}<br>%{customdata[1]} in flight, TTFT p50 %{customdata[2]}<extra></extra>"
    )
    notes = [
        [_p(p["t"], 40), "-" if r is None else f"{r:.3g}", seconds(s)]
        for p, r, s in zip(rows, running, ttft, strict=True)
    ]
    traces = [
        _line(
            "requests in flight",
            x,
            running,
            "@muted",
            hover,
            customdata=notes,
            mode="lines",
            fill="tozeroy",
            fillcolor="@shade",
            yaxis="y2",
            line={"color": "@muted", "width": 1.5},
        ),
        _line(
            "TTFT p50",
            x,
            ttft,
            "@accent",
            hover,
            customdata=notes,
            mode="lines",
            line={"color": "@accent", "width": 2},
        ),
    ]
    axis = {"gridcolor": "@grid", "zerolinecolor": "@grid", "automargin": True}
    figure = _figure(
        traces,
        "seconds since the start" if relative else "time, UTC",
        "TTFT, s",
        height=380,
        xaxis={"anchor": "y2"},
        yaxis={"domain": [0.54, 1.0]},
        shapes=_peaks(rows, x),
        yaxis2={
            **axis,
            "domain": [0.0, 0.46],
            "rangemode": "tozero",
            "title": {"text": "in flight"},
        },
    )
    return ("load", "Load over time", _load_reading(rows), figure, "")


def _stamp(value: object) -> str | None:
    """An ISO instant as Plotly reads it, or None for anything else."""
    from datetime import datetime

    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _peaks(rows: Sequence[Mapping[str, Any]], x: Sequence[Any]) -> list[dict[str, Any]]:
    shapes: list[dict[str, Any]] = []
    start: Any = None
    for at, row in zip(x, rows, strict=True):
        if row.get("peak") and start is None:
            start = at
        if not row.get("peak") and start is not None:
            shapes.append(_shade(start, at))
            start = None
    if start is not None:
        shapes.append(_shade(start, x[-1]))
    return shapes[:50]


def _shade(start: Any, end: Any) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": start,
        "x1": end,
        "y0": 0,
        "y1": 1,
        "fillcolor": "@shade",
        "line": {"width": 0},
        "layer": "below",
    }


def _load_reading(rows: Sequence[Mapping[str, Any]]) -> str:
    def known(name: str, peak: bool) -> list[float]:
        chosen = [
            _float(r.get(name))
            for r in rows
            if bool(r.get("peak")) is peak and r.get("ttft_p50_s") is not None
        ]
        return sorted(v for v in chosen if v is not None)

    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    def median(values: list[float]) -> float | None:
        return values[len(values) // 2] if values else None

    a, b = mean(known("running", False)), mean(known("running", True))
    s, t = median(known("ttft_p50_s", False)), median(known("ttft_p50_s", True))
    if a is None or b is None:
        return "There is no peak that stands out from the rest."
    text = f"In the peak (shaded) {b:.3g} requests are in flight on average, {a:.3g} otherwise"
    if s is not None and t is not None:
        text += f"; the median TTFT is {seconds(t)} against {seconds(s)}"
    return text + "."


def _prefix_charts(d: Diagnosis) -> list[_Chart]:
    """Where reusable work is lost: the ladder and the curves behind it."""
    return [
        (
            one.name,
            one.title,
            one.reading,
            _figure(one.traces, one.x, one.y, height=one.height, **one.layout),
            _table(one.table, named=False) if one.table is not None else "",
        )
        for one in (charts(d.prefix) if d.prefix is not None else ())
    ]


def _breaks(d: Diagnosis) -> str:
    """Where prompts break that should share a beginning."""
    parts = [part for part in sections(d.prefix) if part.first] if d.prefix is not None else []
    return "".join(
        f'<section class="card"><h2>{_e(part.title)}</h2>'
        f"{_table(part.table, named=False) if part.table is not None else ''}"
        f"{_ul(line.strip() for line in part.said)}</section>"
        for part in parts
    )


def _charts_html(charts: Sequence[_Chart]) -> str:
    out = []
    for name, heading, reading, _, table in charts:
        legend, split, rest = "", "", table
        if table.startswith("<ul"):
            legend, split, rest = table.partition("</ul>")
        detail = f"<details><summary>The figures</summary>{rest}</details>" if rest else ""
        out.append(
            f'<section class="chart"><h2>{_e(heading)}</h2>{legend}{split}'
            f'<div class="plot" id="plot-{name}" role="img" aria-label="{_e(heading)}"></div>'
            f'<p class="reading">{_e(reading)}</p>{detail}</section>'
        )
    return f'<div class="charts">{"".join(out)}</div>' if out else ""


# --- tables ---------------------------------------------------------------------------------------


def _table(table: Table, limit: int = ROWS, *, named: bool = True) -> str:
    head = "".join(
        f'<th scope="col"{_side(table, at)}>{_e(name)}</th>'
        for at, name in enumerate(table.columns)
    )
    rows = []
    for row in table.rows[:limit]:
        cells = "".join(
            f"<td{_side(table, at)}>{_e(cell, 300)}</td>" for at, cell in enumerate(row)
        )
        rows.append(f"<tr>{cells}</tr>")
    more = ""
    if len(table.rows) > limit:
        more = f'<p class="quiet">{len(table.rows) - limit} more rows in --json.</p>'
    note = f'<p class="quiet">{_e(table.note)}</p>' if table.note else ""
    hidden = "" if named else ' class="hidden"'
    return (
        f'<div class="scroll" tabindex="0"><table><caption{hidden}>{_e(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}{note}"
    )


def _side(table: Table, at: int) -> str:
    return ' class="l"' if at in table.left else ""


def _remedies(d: Diagnosis) -> str:
    if not d.remedies:
        return ""
    items = []
    for r in remedies_by_gain(d):
        body = [f"<dt>{_e(remedy_name(r))} <code>{_e(r.id)}</code></dt>"]
        body.append(f"<dd>{_e(gain_sentence(r, d.population.ttft_mean_s))}</dd>")
        if r.cost:
            body.append(f"<dd>Cost: {_e(r.cost)}</dd>")
        saving = saving_sentence(d, r)
        if saving:
            body.append(f"<dd>Over this log it {_e(saving)}.</dd>")
        if r.assumptions:
            body.append(f"<dd>Assumes: {_e('; '.join(clean(a) for a in r.assumptions))}</dd>")
        items.append(f"<div>{''.join(body)}</div>")
    return (
        '<section class="card"><h2>Remedies, what they cost and assume</h2>'
        f'<dl class="remedies">{"".join(items)}</dl></section>'
    )


def _evidence(d: Diagnosis) -> str:
    target = slo_sentence(d)
    out = ['<section class="card two"><div><h2>Cost of a token</h2>', _ul(cost_sentences(d))]
    if target:
        out.append(f"<h3>Target</h3><p>{_e(target)}</p>")
    out.append("</div><div><h2>Repeated prefix</h2>")
    out.append(_ul(prefix_sentences(d)))
    out.append("</div></section>")
    return "".join(out)


def _splits(d: Diagnosis) -> str:
    tables = [t for t in split_tables(d) if t.name != "by_turn" or not _turn_chart(d)]
    out = [_table(t) for t in tables]
    matrix = turn_by_length(d)
    if matrix is not None:
        out.insert(0, _heat(matrix, d))
    if not out:
        return ""
    return f'<section class="card splits"><h2>Splits</h2>{"".join(out)}</section>'


def _heat(matrix: Table, d: Diagnosis) -> str:
    """The matrix of turn and length with a tint by TTFT."""
    top = max((s.ttft_p50_s or 0.0 for s in d.splits.turn_by_length), default=0.0) or 1.0
    known = {seconds(s.ttft_p50_s): s.ttft_p50_s or 0.0 for s in d.splits.turn_by_length}
    head = "".join(f'<th scope="col">{_e(name)}</th>' for name in matrix.columns)
    rows = []
    for row in matrix.rows:
        cells = [f'<th scope="row">{_e(row[0])}</th>']
        for cell in row[1:]:
            level = round(9 * known.get(cell, 0.0) / top)
            tint = f' class="h{level}"' if cell != "-" else ""
            cells.append(f"<td{tint}>{_e(cell)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0"><table class="heat">'
        f"<caption>{_e(matrix.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="quiet">{_e(matrix.note)}</p>'
    )


def _worst(d: Diagnosis) -> str:
    rows, examples = worst_table(d), worked_examples(d)
    if rows is None and not examples:
        return ""
    heading = rows.title if rows is not None else "The worst requests"
    body = _table(rows, named=False) if rows is not None else ""
    return f'<section class="card"><h2>{_e(heading)}</h2>{body}{_ul(examples)}</section>'


def _causes(d: Diagnosis) -> str:
    if not d.causes:
        return ""
    details = []
    unjudged: dict[tuple[str, ...], list[str]] = {}
    for f in findings(d):
        if f.status == "unjudged":
            unjudged.setdefault(f.needs, []).append(f"<code>{_e(f.id)}</code>")
            continue
        if f.status == "ruled_out":
            continue
        said = about(f)
        if said:
            sentences = " ".join(s if s.endswith((".", "…")) else s + "." for s in said)
            details.append(f"<dt><code>{_e(f.id)}</code></dt><dd>{_e(sentences, 20_000)}</dd>")
    for needs, names in unjudged.items():
        want = ", ".join(clean(n, 60) for n in needs) or "more than this log has"
        details.append(f"<dt>Not judged</dt><dd>{_e(want)} would decide {', '.join(names)}</dd>")
    why = "".join(
        f"<dt><code>{_e(name)}</code></dt><dd>{_e(text)}</dd>" for name, text in ruled_out(d)
    )
    excluded = f'<h3>Ruled out</h3><dl class="known">{why}</dl>' if why else ""
    return (
        f'<section class="card"><h2>Causes considered</h2>{_table(cause_table(d), named=False)}'
        f'<details open><summary>What is known of each</summary><dl class="known">'
        f"{''.join(details)}</dl>{excluded}</details></section>"
    )


def _read(d: Diagnosis) -> str:
    out = ['<section class="card"><h2>What was read</h2><ul class="read">']
    for line in read_sentences(d):
        css = ' class="sub"' if line.startswith(" ") else ""
        out.append(f"<li{css}>{_e(line.strip())}</li>")
    out.append("</ul>")
    if d.evidence.notes:
        out.append("<h3>Notes on the evidence</h3>")
        out.append(_ul(d.evidence.notes))
    out.append("</section>")
    return "".join(out)


# --- style and script -----------------------------------------------------------------------------

_LIGHT = """
color-scheme:light;--bg:#f6f6f3;--card:#ffffff;--text:#1d2327;--muted:#5e6870;--grid:#dcdfe1;
--good:#00694c;--bad:#a83c00;--warn:#7a5c00;--unknown:#4a5560;--accent:#0067a5;
--repeated:#d55e00;--repeated-soft:#eda878;--new:#0072b2;--new-soft:#86bfe0;--other:#cc79a7;
--fixed:#8b939b;--unexplained:#c9cdd1;--band:rgba(213,94,0,.16);
--shade:rgba(120,120,120,.13);--heat:213,94,0;
"""
_DARK = """
color-scheme:dark;--bg:#14181b;--card:#1d2327;--text:#e9ecee;--muted:#a3adb5;--grid:#39434a;
--good:#4cc79b;--bad:#ff9a5c;--warn:#e6c34d;--unknown:#b4bfc8;--accent:#6cb8ea;
--repeated:#f08a3c;--repeated-soft:#a45f2c;--new:#56b4e9;--new-soft:#3a769b;--other:#d896ba;
--fixed:#8b959d;--unexplained:#525c64;--band:rgba(240,138,60,.2);
--shade:rgba(190,200,210,.1);--heat:240,138,60;
"""
_STYLE = (
    f":root{{{_LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_DARK}}}}}"
    """
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:16px/1.55 system-ui,sans-serif;
  overflow-wrap:anywhere}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:clamp(1.3rem,2.6vw,1.9rem);line-height:1.3;margin:.4rem 0 1rem;max-width:38em;
  text-wrap:pretty;font-weight:650}
h2{font-size:1.06rem;margin:0 0 .6rem;font-weight:650}
h3{font-size:.95rem;margin:1.1rem 0 .3rem}
p{margin:.4rem 0}ul,ol{margin:.3rem 0;padding-left:1.25em}li{margin:.3rem 0}
code{font:.88em ui-monospace,monospace;background:color-mix(in srgb,var(--muted) 14%,transparent);
  padding:.08em .35em;border-radius:4px}
.quiet{color:var(--muted);font-size:.88rem}
.verdict,.answer>div,.chart,.card,.warnings{background:var(--card);border:1px solid var(--grid);
  border-radius:12px;padding:20px 22px}
.verdict{border-top:5px solid var(--level)}
.good{--level:var(--good)}.bad{--level:var(--bad)}.warn{--level:var(--warn)}
.unknown{--level:var(--unknown)}
.brand{color:var(--muted);font-size:.88rem;margin:0 0 1rem}.brand span{margin-left:.6em}
.badge{display:inline-block;margin:0;padding:.12rem .7rem;border-radius:99px;font-size:.8rem;
  font-weight:700;letter-spacing:.06em;color:var(--card);background:var(--level)}
.facts{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;color:var(--muted)}
.facts li{margin:0}.facts code{color:var(--text)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:14px;
  margin:1.2rem 0 0;padding-top:1rem;border-top:1px solid var(--grid)}
.tiles>div{display:flex;flex-direction:column}
.tiles dd{margin:0;font-size:1.5rem;font-weight:650;font-variant-numeric:tabular-nums;
  line-height:1.25}
.tiles dt{color:var(--muted);font-size:.84rem;line-height:1.3}
.answer{display:grid;grid-template-columns:3fr 2fr;gap:18px;margin:18px 0}
.evidence{padding-left:1.1em}.evidence li{margin:.45rem 0}
.amplifier{margin-top:.9rem;padding-top:.8rem;border-top:1px solid var(--grid)}
.first{font-size:1.15rem;font-weight:650;margin:.1rem 0}
.bars{margin:.7rem 0}
.bars div{display:grid;grid-template-columns:3.2em 1fr 4.6em;gap:.5em;align-items:center;
  font-size:.88rem;margin:.25rem 0;font-variant-numeric:tabular-nums}
.bars i{background:color-mix(in srgb,var(--muted) 12%,transparent);border-radius:4px;height:14px}
.bars b{display:block;height:14px;border-radius:4px}
.bars .now{background:var(--fixed)}.bars .then{background:var(--new)}
.warnings{margin:18px 0;border-left:5px solid var(--warn)}
.charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:18px;margin:18px 0}
.chart{min-width:0}.chart:first-child,
.chart:last-child:nth-child(even){grid-column:1/-1}
.plot{min-height:120px;margin:0 -6px}
.reading{margin:.6rem 0 .2rem}
.legend{list-style:none;padding:0;margin:.2rem 0 .4rem;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;
  font-size:.88rem}
.legend li{margin:0;display:flex;align-items:center;gap:.45em}
.legend i{width:14px;height:14px;border-radius:3px;flex:none;background:var(--k);
  print-color-adjust:exact}
.k-fixed{--k:var(--fixed)}.k-prefill_repeated{--k:var(--repeated)}.k-prefill_new{--k:var(--new)}
.k-unexplained{--k:var(--unexplained)}.k-queue_other{--k:var(--other)}
.k-queue_behind_repeated{--k:var(--repeated-soft)}.k-queue_behind_new{--k:var(--new-soft)}
.legend i[class*=queue]{background:repeating-linear-gradient(135deg,var(--k) 0 3px,
  var(--card) 3px 4px)}
.card{margin:18px 0}.two{display:grid;grid-template-columns:1fr 1fr;gap:28px}
details{margin-top:.7rem}summary{cursor:pointer;color:var(--accent);font-size:.92rem}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible,summary:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:50%;
  overflow-wrap:normal}
caption{text-align:left;font-weight:600;padding:.3rem 0;white-space:nowrap}
th,td{padding:.32rem .7rem;text-align:right;border-bottom:1px solid var(--grid);
  vertical-align:top;white-space:nowrap}
th{color:var(--muted);font-weight:600}th:first-child,td:first-child{padding-left:0}
.l{text-align:left;white-space:normal;min-width:7em;max-width:26em;overflow-wrap:anywhere}
.heat th[scope=row]{text-align:left}
.remedies>div{padding:.7rem 0;border-top:1px solid var(--grid)}
.remedies>div:first-child{border:0;padding-top:0}
.remedies,.known{margin:0}.remedies dt{font-weight:600}.remedies dd,.known dd{margin:.1rem 0}
.remedies dd+dd{color:var(--muted);font-size:.92rem}
.known{display:grid;grid-template-columns:max-content 1fr;gap:.5rem 1.2rem;font-size:.94rem;
  margin-top:.6rem}
.read{list-style:none;padding:0}.read .sub{padding-left:1.4em;color:var(--muted)}
@media (max-width:820px){.answer,.charts,.two{grid-template-columns:minmax(0,1fr)}
  .known{grid-template-columns:1fr;gap:.1rem}.known dd{margin-bottom:.7rem}}
@media (max-width:480px){main{padding:10px 10px 40px}
  .verdict,.answer>div,.chart,.card,.warnings{padding:15px 14px;border-radius:10px}
  .tiles{grid-template-columns:repeat(3,1fr)}.tiles dd{font-size:1.2rem}
  .brand span{display:block;margin:.2rem 0 0}}
@media print{body{background:#fff;font-size:11pt}main{max-width:none;padding:0}
  .verdict,.answer>div,.chart,.card,.warnings{break-inside:avoid;border-color:#bbb}
  .card.splits{break-inside:auto}.charts{grid-template-columns:1fr}summary{display:none}
  .scroll{overflow:visible}}
""" + "".join(f".h{n}{{background:rgba(var(--heat),{0.03 + 0.055 * n:.3f})}}" for n in range(10))
)

_SCRIPT = """
(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("charts").textContent);
  var root = document.documentElement;
  var names = Object.keys(figures);
  function coloured(value, style) {
    if (Array.isArray(value)) return value.map(function (v) { return coloured(v, style); });
    if (value && typeof value === "object") {
      var out = {};
      Object.keys(value).forEach(function (key) {
        out[key] = /color/i.test(key) ? paint(value[key], style) : coloured(value[key], style);
      });
      return out;
    }
    return value;
  }
  function paint(value, style) {
    if (Array.isArray(value)) return value.map(function (v) { return paint(v, style); });
    if (typeof value === "string" && value.charAt(0) === "@")
      return style.getPropertyValue("--" + value.slice(1)).trim();
    return value;
  }
  var config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
    displayModeBar: window.matchMedia("(hover: hover)").matches ? "hover" : false,
    scrollZoom: false, doubleClick: "reset"
  };
  function draw() {
    if (typeof Plotly === "undefined") return;
    var style = getComputedStyle(root);
    names.forEach(function (name) {
      var figure = coloured(figures[name], style);
      Plotly.react("plot-" + name, figure.data, figure.layout, config);
    });
  }
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("beforeprint", function () {
    root.dataset.theme = "light";
    document.querySelectorAll("details").forEach(function (d) { d.open = true; });
    draw();
  });
  window.addEventListener("afterprint", function () {
    delete root.dataset.theme;
    draw();
  });
})();
"""

RENDERER = Renderer(
    name="html",
    title="one HTML page with charts, opens offline",
    suffixes=(".html", ".htm"),
    render=render,
)

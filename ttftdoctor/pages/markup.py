"""Text that may be hostile as HTML: the only place where pages escape.

Whatever comes from a log, a path or a policy passes :func:`esc` on its way into an element or a
quoted attribute, and :func:`label` on its way into a chart, where Plotly would read it as markup.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from ttftdoctor.language import spoken, tr
from ttftdoctor.report import Table, clean

#: Rows shown of a table; the rest is counted below it.
ROWS = 200
#: Lines shown of a list.
LINES = 100
#: Letters of a cell that stay on one line where no blank parts them, as a stamp's do.
WORD = 24
#: A flag of a command line and the marks that close on it.
_FLAG = re.compile(r"(?<![\w-])(--[a-z][\w-]*)([,.;:)，。；：）、]*)")
#: What a sentence ends with.
STOPS = (".", "…", "?", "!", ":", "。", "？", "！", "：")


def esc(text: object, limit: int = 2_000) -> str:
    """Text for HTML, in an element or in a quoted attribute."""
    return html.escape(clean(text, limit), quote=True)


def label(text: object, limit: int = 80) -> str:
    """Text for Plotly, which reads tags and entities in its labels."""
    return html.escape(clean(text, limit), quote=False)


def flagged(text: str) -> str:
    """Text for HTML with its flags (``--flag``) as code, which no line break parts."""
    return _FLAG.sub(r'<span class="word"><code>\1</code>\2</span>', esc(text))


def data_text(data: object) -> str:
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


def sentence(text: str) -> str:
    """A sentence that begins large and ends with a stop."""
    if spoken() == "en":  # elsewhere what begins small, as p95 and token do, stays small
        text = text[:1].upper() + text[1:]
    return text if text.endswith(STOPS) else tr("{sentence}.", sentence=text)


def paragraph(sentences: Iterable[str]) -> str:
    """Sentences one after another, without those that are empty."""
    return reduce(
        lambda text, more: tr("{text} {more}", text=text, more=more) if text and more
        else text or more,
        sentences, "",
    )  # fmt: skip


def listed(lines: Iterable[object], css: str = "", limit: int = 2_000) -> str:
    """A bulleted list; empty without lines. Of very many the first are shown, the rest counted."""
    every = list(lines)
    if not every:
        return ""
    items = "".join(f"<li>{esc(line, limit)}</li>" for line in every[:LINES])
    if len(every) > LINES:
        more = tr("and {n} more", n=len(every) - LINES)
        items += f"<li>{esc(more)}</li>"
    return f'<ul class="{css}">{items}</ul>' if css else f"<ul>{items}</ul>"


def head(level: str, text: str) -> str:
    """A heading of a level: ``h2``, ``h3``."""
    return f"<{level}>{esc(text)}</{level}>"


def card(heading: str, body: str) -> str:
    """A box with a heading of the third level; empty without a body."""
    return f'<section class="card">{head("h3", heading)}{body}</section>' if body else ""


def box(body: str, css: str = "card") -> str:
    """A box without a heading of its own; empty without a body."""
    return f'<div class="{css}">{body}</div>' if body else ""


def folded(summary: str, body: str) -> str:
    """What is shown on demand, by mouse or keyboard; empty without a body."""
    if not body:
        return ""
    return f"<details><summary>{esc(summary)}</summary>{body}</details>"


def defined(pairs: Iterable[tuple[str, str]], css: str = "known") -> str:
    """Names and what is said of them; both are HTML already."""
    items = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in pairs)
    return f'<dl class="{css}">{items}</dl>' if items else ""


def table_of(table: Table, limit: int = ROWS, *, named: bool = True) -> str:
    """A table that scrolls by itself where it is too wide, by keyboard as well.

    Without ``named`` its caption is for screen readers only.
    """
    return tinted(table, (), limit, named=named)


def tinted(
    table: Table,
    levels: Sequence[Sequence[int | None]],
    limit: int = ROWS,
    *,
    named: bool = True,
    heads: bool = False,
) -> str:
    """A table whose cells have a tint from 0 to 9, or none; ``heads``: the first column names."""
    head = "".join(
        f'<th scope="col"{_side(table, at)}>{esc(name)}</th>' if name else "<td></td>"
        for at, name in enumerate(table.columns)
    )
    rows = []
    for number, row in enumerate(table.rows[:limit]):
        cells = []
        for at, cell in enumerate(row):
            level = levels[number][at] if number < len(levels) else None
            css = f' class="h{level}"' if level is not None else _side(table, at, cell)
            if heads and at == 0:
                cells.append(f'<th scope="row">{esc(cell, 300)}</th>')
            else:
                cells.append(f"<td{css}>{esc(cell, 300)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    more = ""
    if len(table.rows) > limit:
        left = tr("{n} more rows in --json.", n=len(table.rows) - limit)
        more = f'<p class="quiet">{esc(left)}</p>'
    note = f'<p class="quiet">{esc(table.note)}</p>' if table.note else ""
    title = table.title or tr("Figures")
    hidden = "" if named else ' class="hidden"'
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{esc(title)}"><table>'
        f"<caption{hidden}>{esc(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}{note}"
    )


def _side(table: Table, at: int, cell: str = "") -> str:
    if at not in table.left:
        return ""
    word = cell.isascii() and len(cell) <= WORD and not re.search(r"\s", cell)
    return ' class="l word"' if cell and word else ' class="l"'


def bars(rows: Sequence[tuple[str, float, str, str]]) -> str:
    """Bars from nothing, drawn beside their names: name, length, figure, class of colour."""
    top = max((length for _, length, _, _ in rows), default=0.0)
    if not top > 0 or not math.isfinite(top):
        return ""
    out = []
    for name, length, told, css in rows:
        width = min(max(1, round(100 * length / top)), 100) if math.isfinite(length) else 0
        out.append(
            f"<div><span>{esc(name)}</span>"
            f'<svg viewBox="0 0 100 10" preserveAspectRatio="none"><rect class="rest" width="100" '
            f'height="10"></rect><rect class="{css}" width="{width}" height="10"></rect></svg>'
            f"<span>{esc(told)}</span></div>"
        )
    return f'<div class="bars" aria-hidden="true">{"".join(out)}</div>'

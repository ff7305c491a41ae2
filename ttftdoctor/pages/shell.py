"""A page around its parts: style, script, the charts' library and the policy that binds them.

The page asks for nothing: no address stands in it, and its Content-Security-Policy forbids the
browser to fetch, to run any script and to use any style but those written here, by their digests.
Plotly puts its rules into a sheet that is there already, and everything else on elements by their
properties, both of which such a policy allows.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from ttftdoctor.language import Language, mark, spoken, tr
from ttftdoctor.pages.figures import Drawing, data_of
from ttftdoctor.pages.markup import data_text, esc

#: Languages as browsers name them: the name also chooses the shapes of Chinese characters.
TAGS: dict[Language, str] = {"en": "en", "zh": "zh-CN"}
DARK = mark("Dark colours")
#: What the script and Plotly say by themselves.
SAID = (
    DARK,
    mark("Light colours"),
    mark("Zoom"),
    mark("Pan"),
    mark("Reset axes"),
    mark("Download plot as a PNG"),
    mark("Preparing image - this may take a few seconds"),
    mark("Image download succeeded"),
    mark("Sorry, there was a problem downloading your image!"),
    mark("Double-click on legend to isolate one trace"),
    mark("Double-click to zoom back out"),
)


def page(title: str, body: str, drawings: Sequence[Drawing] = ()) -> str:
    """The whole document, in the language spoken. ``title`` is text, ``body`` HTML."""
    data = data_of(drawings)
    styles = [_asset("page.css") + _room(drawings), PLOTLY_SHEET]
    scripts = [_script_safe(_asset("plotly-basic.min.js"))] if data else []
    scripts.append(_asset("page.js"))
    policy = (
        "default-src 'none'; "
        f"script-src {' '.join(map(_digest, scripts))}; "
        f"style-src {' '.join(map(_digest, styles))}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n"
        f'<html lang="{TAGS[spoken()]}"{_words()}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{esc(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{esc(title)}</title>\n"
        f"<style>{styles[0]}</style>\n"
        f'<style id="plotly.js-style-global">{styles[1]}</style>\n'
        f"</head>\n<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="charts">{data_text(data)}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


#: Into a sheet of this name Plotly puts its rules, instead of adding one that the policy forbids.
PLOTLY_SHEET = ".js-plotly-plot{position:relative}"


def brand(version: str, who: Sequence[str]) -> str:
    """The line at the top: who made the page, of what, and the switch of its colours."""
    dark = esc(tr(DARK))
    told = " · ".join(f"<span>{esc(part, 400)}</span>" for part in who)
    return (
        f'<div class="top"><p class="brand">ttftdoctor {esc(version, 40)} '
        f"<span>{told}</span></p>"
        f'<button type="button" id="theme">{dark}</button></div>'
    )


def _words() -> str:
    """The attribute by which the script gets its words; none in English, which it has."""
    if spoken() == "en":
        return ""
    words = data_text({text: tr(text) for text in SAID})
    return f' data-words="{esc(words, 10_000)}"'


def _room(drawings: Sequence[Drawing]) -> str:
    """Rules that keep the height of each chart free, so that nothing moves when it is drawn."""
    return "".join(
        f"#plot-{esc(d.name, 40)}{{min-height:{d.height}px}}\n" for d in drawings if d.height
    )


@cache
def _asset(name: str) -> str:
    """A file that is shipped beside this one."""
    place = resources.files("ttftdoctor") / "pages" / "assets" / name
    return place.read_text(encoding="utf-8")


def _script_safe(script: str) -> str:
    """A script that cannot end its element early."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

"""Pages of the manual for a terminal, and the list of them."""

from __future__ import annotations

from rich.console import Console
from rich.markdown import Markdown
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from ttftdoctor.manual import KINDS, Page, pages, plain_links

#: The lines a reader's eye follows without losing its place.
MEASURE = 100

#: The terminal's own colours: code is no dark box on a light terminal.
_THEME = Theme({"markdown.code": "bold", "markdown.item.bullet": "none"})

_HEADS = {
    "causes": "Causes: why the first token is late",
    "remedies": "Remedies: what can be turned on or done",
    "metrics": "Metrics: what is measured",
    "accounts": "Accounts: what the mean TTFT is made of",
    "rungs": "Rungs: what each limit takes of the reusable tokens",
}


def print_page(console: Console, page: Page) -> None:
    """Print a page at the console's width, at most 100 columns of text."""
    width = min(console.width, MEASURE)
    with console.use_theme(_THEME):
        console.print(Text(f"{page.id}: {page.title}", style="bold"), width=width)
        console.print(Text(KINDS[page.kind]), width=width)
        console.print()
        console.print(_prose(page.summary), width=width)
        for heading, text in page.sections:
            console.print()
            console.print(_rule(heading), width=width)
            console.print(_prose(text), width=width)


def print_list(console: Console) -> None:
    """Print the names of all pages with their titles."""
    width = min(console.width, MEASURE)
    for kind, head in _HEADS.items():
        console.print(_rule(head), width=width)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, min_width=24)
        table.add_column(overflow="fold")
        for page in pages():
            if page.kind == kind:
                table.add_row(Text(page.id), Text(page.title))
        console.print(table, width=width)
        console.print()
    console.print("ttftdoctor explain NAME prints a page.", width=width)


def _prose(text: str) -> Markdown:
    return Markdown(plain_links(text), hyperlinks=False)


def _rule(title: str) -> Rule:
    return Rule(Text(title, style="bold"), align="left", style="none")

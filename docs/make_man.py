"""Write the man page from the command line itself: ``python docs/make_man.py > docs/ttftdoctor.1``.

One page for all commands, with every option and its help. It holds no date and no version, so
that it changes only when the command line does.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from typer.main import get_command

from ttftdoctor.cli import app

HEAD = """\
.TH TTFTDOCTOR 1
.SH NAME
ttftdoctor \\- say why the first token of an LLM service is late, from its request log
.SH SYNOPSIS
.B ttftdoctor
.I COMMAND
.RI [ OPTIONS ]
.RI [ LOG... ]
.SH DESCRIPTION
Reads the request log of an LLM service and says why the time to first token (TTFT) is what it
is, with evidence, how sure it is, what each remedy would gain, and what the log cannot tell.
.PP
A
.I LOG
is a file, a glob, a folder or \\- for standard input; plain, gzip, Zstandard, bzip2 or xz.
.SH COMMANDS
"""

TAIL = """\
.SH SEE ALSO
.B ttftdoctor explain
prints the manual's page of a cause, remedy, metric, account or rung.
.B ttftdoctor \\-\\-install\\-completion
completes commands and options in the shell.
"""


def escaped(text: str) -> str:
    """Text that roff shows as it is, at the start of a line too."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text, each on one line."""
    return [" ".join(part.split()) for part in text.strip().split("\n\n")]


def command_of(name: str, command: Any) -> str:
    """The part of the page on one command."""
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    out = [f".SS {escaped(name)} {escaped(usage)}"]
    for at, text in enumerate(paragraphs(command.help or "")):
        out += [".PP"] if at else []
        out.append(escaped(text))
    for param in command.params:
        record = param.get_help_record(context)
        if record is not None:
            out += [".TP", f".B {escaped(record[0])}", escaped(" ".join(record[1].split()))]
    out += [".PP", escaped(" ".join((command.epilog or "").split()))]
    return "\n".join(out) + "\n"


def page() -> str:
    """The whole page."""
    group: Any = get_command(app)
    return HEAD + "".join(command_of(*item) for item in group.commands.items()) + TAIL


if __name__ == "__main__":
    sys.stdout.write(page())

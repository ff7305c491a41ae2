"""The options that commands share, and what their exit codes mean."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ttftdoctor.language import Language

EXIT_CODES = """Exit codes: 0 the work was done (whatever the verdict); 2 wrong usage, or a log that
could not be read, or a report that could not be written; 3 something went wrong inside ttftdoctor;
130 interrupted."""

GATE_CODES = """Exit codes: 0 pass (or inconclusive, unless the policy is strict); 1 regression; 2
wrong usage, or a log, baseline or policy that could not be read, or a report that could not be
written; 3 inconclusive under a strict policy; 4 invalid: the two sides cannot be compared; 70
something went wrong inside ttftdoctor; 130 interrupted."""

Logs = Annotated[
    list[str],
    typer.Argument(
        help="Files, globs, folders, addresses (s3://, https://, postgresql://, ...), or - for "
        "standard input.",
        metavar="LOG...",
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Name of the log's format (see: formats).")
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="COLUMN=FIELD: which field holds a column, e.g. ttft_us=first."),
]
Unit = Annotated[
    list[str] | None,
    typer.Option("--unit", help="FIELD=UNIT: unit of a duration (ns, us, ms, s), e.g. first=ms."),
]
MapFile = Annotated[
    str | None,
    typer.Option("--mapping", help="A mapping file: fields, units and stamps of a flat log."),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        help="Zone of stamps that carry none, such as Europe/Berlin; reports show times in it.",
    ),
]
Lang = Annotated[
    Language,
    typer.Option(
        "--lang", envvar="TTFTDOCTOR_LANG", help="Language of the report: English or Chinese."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only rows from then on: a date, a time (UTC or --timezone), 14:00 on the last day, "
        "or 2h before the end.",
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Only rows before then, as --since.")]
Where = Annotated[
    str | None,
    typer.Option("--where", help="Only rows such as 'model == \"x\" and input > 4000'."),
]
Query = Annotated[
    str | None, typer.Option("--query", help="What a database is asked: 'select ...'.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="How much to take, e.g. 1GiB; of a larger log a part is looked at, and counts and "
        "tables are of all. Half of the machine's by default.",
    ),
]
EngineName = Annotated[
    Literal["local", "spark"],
    typer.Option("--engine", help="Who reads: this machine, or a Spark cluster."),
]
SparkMaster = Annotated[
    str | None,
    typer.Option("--spark-master", help="Address of the cluster, e.g. spark://host:7077."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ToHtml = Annotated[
    str | None, typer.Option("--html", help="Write one page that opens offline, or - .")
]
ToJson = Annotated[
    str | None, typer.Option("--json", help="Write the answer as JSON to a file, or - .")
]
ToMarkdown = Annotated[
    str | None, typer.Option("--markdown", help="Write Markdown to a file, or - .")
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="A local tokenizer.json, for exact blocks.")
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress; no report on screen if a file is written."),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text without colour.")]
SloTtft = Annotated[
    str | None, typer.Option("--slo-ttft", help="Target for TTFT, e.g. 800ms or 1.5s.")
]
CompactTo = Annotated[
    int, typer.Option("--compact-to", min=1, help="Tokens a compacted history is cut to.")
]
Params = Annotated[
    float | None, typer.Option("--params", help="Parameters of the model, e.g. 7e9.")
]
Flops = Annotated[float | None, typer.Option("--flops", help="Peak FLOP/s, e.g. 312e12.")]
Bandwidth = Annotated[
    float | None, typer.Option("--bandwidth", help="Memory bandwidth in bytes/s, e.g. 2e12.")
]
BytesPerParam = Annotated[float, typer.Option("--bytes-per-param", help="Bytes a parameter.")]
Prices = Annotated[
    bool, typer.Option("--prices", help="Put waste and gains in money, by list prices.")
]
Provider = Annotated[
    str | None, typer.Option("--provider", help="Whose list prices, e.g. anthropic.")
]
GpuHourPrice = Annotated[
    float | None, typer.Option("--gpu-hour-price", help="Or by what a GPU costs an hour.")
]
Gpus = Annotated[float | None, typer.Option("--gpus", help="GPUs of a replica; 1 if not given.")]
Currency = Annotated[
    str | None, typer.Option("--currency", help="Label of the money; USD if not given.")
]

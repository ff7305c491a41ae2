"""GenAI-Perf and perf_analyzer: ``profile_export.json``, experiments with their requests.

Epoch nanoseconds throughout. There is no TTFT: it is the stamp of the first response that holds
text, less ``timestamp``. The first response is often no token: a chunk that names the role comes
before it, and the last ones hold usage or ``[DONE]``; responses without text count at neither end.
A request without any response failed; one whose responses hold no text is skipped by the tool and
here. Token counts are in the file only where the server sent usage.

The clock is the client's. Several experiments in one file are several loads. Prompts and answers
are in the file; answers are looked at for being empty and never kept.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts, find
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, prompts_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

#: A piece of an answer: a text that is not empty, under any name an API gives it.
_PIECE = r'"(?:content|text|reasoning_content|reasoning)"\s*:\s*"[^"]'
_ERROR = r'^\s*(?:event:\s*error|(?:data:\s*)?\{\s*"(?:error|detail)"\s*:)|"object"\s*:\s*"error"'
_USAGE = {
    "input": r'"prompt_tokens"\s*:\s*(\d{1,18})\b',
    "output": r'"completion_tokens"\s*:\s*(\d{1,18})\b',
    "cached": r'"cached_tokens"\s*:\s*(\d{1,18})\b',
}

_PLACES = {
    "timestamp": "timestamp",
    "sequence_id": "sequence_id",
    "session": "request_inputs.session_id",
    "request_inputs": "request_inputs",
    "payload": "request_inputs.payload",
}
#: A response: a frame of an OpenAI server, or the text of Triton.
_OUTPUT = pl.List(pl.Struct({"response": pl.String, "text_output": pl.String}))

FIELDS = {
    "session_id": Field("request_inputs.session_id, sequence_id", "", mark("the tool's name")),
    "start": Field("timestamp", "ns", mark("when the request was sent")),
    "model": Field("request_inputs.payload.model", "", mark("as asked for")),
    "input_tokens": Field("usage.prompt_tokens", "tokens", mark("as the server reported")),
    "cached_tokens": Field("usage.cached_tokens", "tokens", mark("as the server reported")),
    "output_tokens": Field("usage.completion_tokens", "tokens", mark("as the server reported")),
    "ttft_us": Field(
        "response_timestamps - timestamp",
        "ns",
        mark("of the first response that holds text"),
        "derived",
    ),
    "e2e_us": Field(
        "response_timestamps - timestamp",
        "ns",
        mark("of the last response that holds text"),
        "derived",
    ),
    "status": Field(
        "response_timestamps, response_outputs",
        "",
        mark("no response, or an error frame"),
        "derived",
    ),
    "streamed": Field("request_inputs.payload.stream", "", mark("as asked for")),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}


def _requests(head: Head) -> list[Any]:
    """All elements of the lists of requests, of whatever type."""
    experiments = (head.outer or {}).get("experiments")
    return [
        request
        for experiment in (experiments if isinstance(experiments, list) else ())
        if isinstance(experiment, dict) and isinstance(experiment.get("requests"), list)
        for request in experiment["requests"]
    ]


def _recognise(head: Head) -> str | None:
    for experiment in head.inner.get("experiments", ()):
        requests = experiment.get("requests")
        first = requests[0] if isinstance(requests, list) and requests else None
        if isinstance(first, dict) and {"timestamp", "response_timestamps"} <= first.keys():
            return tr("experiments with requests that have response_timestamps")
    return None


def _plan(head: Head, options: Options) -> Plan:
    every = _requests(head)
    inputs = [r.get("request_inputs") for r in every[:200] if isinstance(r, dict)]
    prompts = prompts_of(find([i for i in inputs if isinstance(i, dict)]), options)

    def convert(raw: Raw) -> Batch:
        return _convert(Raw(_flat(every), raw.options), prompts, raw.frame.height)

    # Requests lie deeper than records do: they are taken from the document itself.
    unwrap = "experiments" if "experiments" in head.inner else None
    return Plan({"experiment": pl.String}, convert, whole=True, unwrap=unwrap)


def _text(value: Any) -> str:
    """A value as JSON; what JSON has no word for is null."""
    try:
        return json.dumps(value, allow_nan=False)
    except RecursionError:
        return "null"
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def _outputs(request: Any) -> str:
    """The responses of a request as a JSON array of objects that hold text or nothing else."""
    found = request.get("response_outputs") if isinstance(request, dict) else None
    if not isinstance(found, list):
        return _text({"v": None})
    return _text({"v": [_said(one) if isinstance(one, dict) else None for one in found]})


def _said(response: dict[str, Any]) -> dict[str, str | None]:
    """The two texts of a response. One that is anything else, of any size, becomes its JSON."""
    found = {name: response.get(name) for name in ("response", "text_output")}
    return {
        name: value if value is None or isinstance(value, str) else _text(value)
        for name, value in found.items()
    }


def _flat(every: list[Any]) -> pl.DataFrame:
    """One row a request of any experiment, numbered through."""
    bare = [
        {k: v for k, v in r.items() if k != "response_outputs"} if isinstance(r, dict) else r
        for r in every
    ]
    texts = pl.DataFrame({"item": [_text(one) for one in bare]}, schema={"item": pl.String})
    items = texts.with_columns(
        pl.int_range(1, pl.len() + 1).alias(LINE),
        *(
            pl.col("item").str.json_path_match(f"$.{path}").alias(name)
            for name, path in _PLACES.items()
        ),
    )
    if items.is_empty():
        outputs = pl.Series("v", [], _OUTPUT)
    else:
        data = "\n".join(map(_outputs, every)).encode()
        outputs = pl.read_ndjson(data, schema={"v": _OUTPUT})["v"]
    answers = _answers(items.with_columns(outputs.alias("output")))
    return items.join(answers, on=LINE, how="left", maintain_order="left")


def _answers(items: pl.DataFrame) -> pl.DataFrame:
    """What the responses of each request say; no row where there are none."""
    stamps = items["item"].str.json_path_match("$.response_timestamps")
    lists = items.select(
        LINE,
        # Digits only, so that one odd stamp does not cost the others.
        stamps.str.extract_all(r"\d{1,19}").cast(pl.List(pl.Int64), strict=False).alias("stamp"),
        pl.col("output").list.eval(
            pl.coalesce(
                pl.element().struct.field("response"),
                # A bare text is put as a frame would have it.
                pl.when(pl.element().struct.field("text_output") == "")
                .then(pl.lit(""))
                .when(pl.element().struct.field("text_output").is_not_null())
                .then(pl.lit('"text":"."')),
            )
        ),
    )
    alike = pl.col("output").list.len() == pl.col("stamp").list.len()
    unknown = pl.lit(None, pl.String).repeat_by(pl.col("stamp").list.len())
    each = (
        lists.with_columns(pl.when(alike).then("output").otherwise(unknown).alias("text"))
        .filter(pl.col("stamp").list.len() > 0)
        .drop("output")
        .explode("stamp", "text")
        .with_columns(
            # Without the responses themselves, each stamp is taken for a token.
            pl.col("text").str.contains(_PIECE).fill_null(True).alias("filled"),
            pl.col("text").str.contains(_ERROR).fill_null(False).alias("error"),
            *(
                pl.col("text").str.extract_all(pattern).list.last().str.extract(pattern, 1)
                .cast(pl.Int64, strict=False).alias(name)
                for name, pattern in _USAGE.items()
            ),
        )
    )  # fmt: skip
    return each.group_by(LINE, maintain_order=True).agg(
        pl.col("stamp").filter("filled").min().alias("first"),
        pl.col("stamp").filter("filled").max().alias("last"),
        pl.col("filled").sum().alias("pieces"),
        pl.len().alias("responses"),
        pl.col("error").any(),
        *(pl.col(name).max() for name in _USAGE),
    )


def _convert(raw: Raw, prompts: Prompts | None, experiments: int) -> Batch:
    flat = raw.frame
    if prompts is not None:
        flat = flat.with_columns(
            pl.col("request_inputs").str.json_path_match(f"$['{column}']").alias(column)
            for column in prompts.where.columns
        )
    rows = Raw(flat, raw.options)
    start = rows.instant("timestamp", "ns")
    stream = rows.boolean("payload", "$.stream")
    alone = (pl.col("pieces") == 1) & (pl.col("output").is_null() | (pl.col("output") > 1))
    frame = rows.select(
        {
            "session_id": pl.coalesce(rows.text("session"), rows.text("sequence_id")),
            "start": start,
            "model": rows.text("payload", "$.model"),
            "input_tokens": pl.col("input"),
            "cached_tokens": pl.col("cached"),
            "output_tokens": pl.col("output"),
            "ttft_us": pl.col("first") // 1000 - start,
            "e2e_us": pl.col("last") // 1000 - start,
            "status": pl.when(pl.col("responses").is_null() | pl.col("error").fill_null(False))
            .then(pl.lit("error"))
            .otherwise(pl.lit("ok")),
            "streamed": stream,
            "vantage": pl.lit("client"),
        },
        reject=pl.when(~pl.col("item").str.starts_with("{"))
        .then(pl.lit("not_an_object"))
        .when((pl.col("pieces") == 0) & ~pl.col("error"))
        .then(pl.lit("answer_without_text")),
        set_aside=pl.when(stream.is_null() & alone).then(pl.lit("not_streamed")),
    )
    notes = []
    if experiments > 1:
        notes.append(
            tr(
                "the file holds {n} experiments, each with a load of its own; all are read as one "
                "log",
                n=experiments,
            )
        )
    if frame.height and not frame["input_tokens"].count():
        notes.append(
            tr("no token counts are in the file: the server sent no usage with its answers")
        )
    return batch_of(frame, FIELDS, tuple(notes), raw=rows, prompts=prompts)


READER = Reader(
    "genai-perf",
    "GenAI-Perf and perf_analyzer exports (profile_export.json)",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "GenAI-Perf stores no token counts: have the server send usage "
        "(--extra-inputs stream_options:'{\"include_usage\":true}'), with cached tokens if it "
        "reports them (vLLM --enable-prompt-tokens-details)"
    ),
)

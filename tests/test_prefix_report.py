"""What people see of the prefix ladder: every form, both widths, hostile names, the commands."""

from __future__ import annotations

import dataclasses
import gzip
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diagnoses
import findings
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.cli.values import tokens_of
from ttftdoctor.errors import UsageError
from ttftdoctor.prefixes import charts, markdown, sections, terminal
from ttftdoctor.prefixes import records as records_module
from ttftdoctor.prefixes.records import PrefixFindings, Rung
from ttftdoctor.report import html, json_report
from ttftdoctor.report import markdown as diagnosis_markdown
from ttftdoctor.report import terminal as diagnosis_terminal
from ttftdoctor.units import share

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
MOONCAKE = str(SAMPLES / "mooncake.jsonl")
EVERY = pytest.mark.parametrize("name", sorted(findings.ALL))
BAD = diagnoses.HOSTILE[:13]


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(result: Any, *words: str) -> None:
    """Exit code 2, nothing on stdout, and one message on stderr with these words."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert "inside ttftdoctor" not in result.stderr
    for word in words:
        assert word in result.stderr, word


def squeezed(text: str) -> str:
    return re.sub(r"[\s\u200b]+", "", text)


def squeezed_lines(text: str) -> str:
    return re.sub(r"\s+", " ", text)


# --- the terminal ---------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("width", [80, 140])
def test_golden_terminal(golden: Callable[[str, str], None], name: str, width: int) -> None:
    report = findings.report(findings.ALL[name]())
    golden(f"prefix/{name}.{width}.txt", terminal.render(report, width))


@EVERY
def test_golden_markdown(golden: Callable[[str, str], None], name: str) -> None:
    golden(f"prefix/{name}.md", markdown.render(findings.report(findings.ALL[name]())))


@EVERY
def test_the_first_lines_say_it(name: str) -> None:
    found = findings.ALL[name]()
    screen = "\n".join(terminal.render(findings.report(found)).splitlines()[:25])
    assert squeezed(sections.headline(found)) in squeezed(screen)
    word, _ = sections.badge(found)
    assert f" {word} " in screen
    if found.ladder is not None:
        for rung in found.ladder.rungs:
            lines = [line for line in screen.splitlines() if line.startswith(rung.title)]
            assert len(lines) >= 1
            assert share(rung.share) in lines[0]
    if found.breakers:
        assert "time at token 42 (system) costs 2,000,000 tokens" in screen


def test_the_badges() -> None:
    full = findings.full()
    assert full.ladder is not None
    assert sections.badge(full) == ("LOST 59 %", "bad")
    assert sections.badge(findings.nothing()) == ("CANNOT TELL", "unknown")
    assert sections.badge(findings.silent()) == ("UP TO 80 %", "unknown")
    first, *rest = full.ladder.rungs
    for left, word, level in ((0.79, "KEPT", "good"), (0.75, "LOST 5.0 %", "warn")):
        last = dataclasses.replace(rest[-1], share=left)
        ladder = dataclasses.replace(full.ladder, rungs=(first, *rest[:-1], last))
        plain = dataclasses.replace(full, ladder=ladder, breakers=())
        assert sections.badge(plain) == (word, level)
    none = tuple(dataclasses.replace(r, hit_tokens=0, share=0.0) for r in full.ladder.rungs)
    ladder = dataclasses.replace(full.ladder, rungs=none)
    nothing = dataclasses.replace(full, ladder=ladder, breakers=())
    assert sections.badge(nothing)[0] == "NOTHING SHARED"
    # Prompts that break share nothing because they break: 2,300,000 of 10,000,000 tokens.
    assert sections.badge(dataclasses.replace(full, ladder=ladder)) == ("BROKEN 23 %", "bad")


def test_where_prompts_break_there_is_a_rung_above() -> None:
    found = findings.full()
    shown = sections.shown(found)
    assert shown is not None
    assert found.ladder is not None
    top, first, *rest = shown.rungs
    assert top.hit_tokens == 10_000_000  # 8,000,000 shared; 2,300,000 broken, but no more there is
    assert first.lost_tokens == top.hit_tokens - first.hit_tokens == 2_000_000
    assert first.lost_seconds == 138.0
    assert tuple(rest) == found.ladder.rungs[1:]
    assert sections.points(top) == "-"
    assert sections.points(first) == "−20.0"
    unbroken = dataclasses.replace(found, breakers=())
    assert sections.shown(unbroken) is found.ladder


def test_a_limit_that_is_not_known_takes_nothing_and_says_how_to_give_it() -> None:
    lines = terminal.render(findings.report(findings.full())).splitlines()
    (rung,) = [line for line in lines if line.startswith("after capacity  ") and "█" in line]
    assert rung.split()[-4:] == ["-"] * 4
    (said,) = [line for line in lines if line.startswith("after capacity") and "not known" in line]
    assert "--cache-tokens" in said


def test_columns_are_there_only_where_something_is_known() -> None:
    plain = terminal.render(findings.report(findings.silent()))
    head = next(line for line in plain.splitlines() if line.startswith("of the prompt tokens"))
    assert head.split()[-4:] == ["left", "lost", "pts", "tokens"]
    full = terminal.render(findings.report(findings.full()))
    head = next(line for line in full.splitlines() if line.startswith("of the prompt tokens"))
    assert head.split()[-3:] == ["tokens", "time", "USD"]


def printed(found: PrefixFindings, width: int, *, colour: bool = True) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, legacy_windows=False,
        color_system="standard" if colour else None,
    )  # fmt: skip
    terminal.print_to(console, findings.report(found, BAD[1]))
    return re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())


@pytest.mark.parametrize("width", [40, 60, 80, 112, 140, 240])
@pytest.mark.parametrize("name", [*findings.ALL, "hostile"])
def test_any_width_holds_all_and_nothing_is_a_control(name: str, width: int) -> None:
    found = findings.hostile(BAD) if name == "hostile" else findings.ALL[name]()
    for line in printed(found, width).split("\n"):
        assert line.isprintable()
        assert len(line) <= width


def test_plain_terminals_get_plain_bars() -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    out = Ascii()
    terminal.print_to(Console(file=out, width=80), findings.report(findings.full()))
    assert not {"█", "░", "•"} & set(out.getvalue())
    assert "#####" in out.getvalue()


SHARES = st.floats(0, 1, allow_nan=False)


def a_rung(value: float) -> Rung:
    return dataclasses.replace(findings.rungs()[1], share=value)


@given(now=SHARES, before=SHARES, more=SHARES, room=st.integers(0, 200))
def test_bars_are_in_proportion_and_in_their_room(
    now: float, before: float, more: float, room: int
) -> None:
    top = max(now, before, more)
    full, gone = sections.bar(a_rung(now), a_rung(before), top, room)
    assert full >= 0
    assert gone >= 0
    assert full + gone <= max(room, 0)
    if room and top > 0:
        assert abs(full - room * now / top) <= 1  # a share that is not zero is never invisible
        assert gone <= max(0.0, room * (before - now) / top) + 1
        assert (full > 0) == (now > 0)


@given(
    shares=st.lists(SHARES, min_size=2, max_size=6),
    tokens=st.integers(-(10**15), 10**15),
    cost=st.one_of(st.none(), st.floats(-1e12, 1e12)),
    width=st.integers(40, 240),
)
def test_any_ladder_fits_any_width(
    shares: list[float], tokens: int, cost: float | None, width: int
) -> None:
    full = findings.full()
    assert full.ladder is not None
    rungs = tuple(
        dataclasses.replace(
            findings.rungs()[at], share=value, lost_tokens=tokens, lost_seconds=cost,
            lost_money=cost,
        )
        for at, value in enumerate(shares)
    )  # fmt: skip
    ladder = dataclasses.replace(full.ladder, rungs=rungs, groups={})
    found = PrefixFindings("content", 1, 1, {}, 1, 16, "none", "so", ladder=ladder)
    text = terminal.render(findings.report(found), width)
    assert max(map(len, text.splitlines())) <= width


# --- Markdown -------------------------------------------------------------------------------------


def parsed(text: str) -> list[Any]:
    blocks = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [t for block in blocks for t in [block, *(block.children or [])]]


@pytest.mark.parametrize("name", [*findings.ALL, "hostile"])
def test_markdown_holds_no_markup_of_the_log(name: str) -> None:
    found = findings.hostile(BAD) if name == "hostile" else findings.ALL[name]()
    text = markdown.render(findings.report(found, BAD[3]))
    assert len(text.encode()) < 65_536
    plain = re.sub(r"</?(details|summary)>", "", text)
    assert "<" not in plain
    assert ">" not in plain
    kinds = {t.type for t in parsed(text)}
    assert not kinds & {"link_open", "image", "html_inline", "em_open", "s_open", "fence"}
    assert "://" not in text
    assert not re.search(r"@\w", text)
    assert len([t for t in parsed(text) if t.type == "heading_open"]) == 1
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_markdown_stays_under_the_limit() -> None:
    full = findings.full()
    assert full.ladder is not None
    group = full.ladder.groups["tenant"][0]
    many = {f"column {n}": (dataclasses.replace(group, name="x" * 90),) * 90 for n in range(200)}
    ladder = dataclasses.replace(full.ladder, groups=many)
    text = markdown.render(findings.report(dataclasses.replace(full, ladder=ladder)))
    assert len(text.encode()) < 65_536
    assert "Left out here for size" in text
    assert "| actually cached |" in text


# --- JSON -----------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    return json_report.schema("prefix-1")


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", [*findings.ALL, "hostile"])
def test_json_keeps_to_the_schema(name: str) -> None:
    found = findings.hostile(BAD) if name == "hostile" else findings.ALL[name]()
    text = json_report.text_of(findings.report(found, BAD[6]).to_dict())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\u200b\ud800]", text)
    document = json.loads(text)
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
    diagnosis = dataclasses.replace(diagnoses.sick(), prefix=found)
    said = json.loads(json_report.render(diagnosis))
    jsonschema.validate(said, json_report.schema(), cls=jsonschema.Draft202012Validator)
    assert said["prefix"].items() <= document.items()


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield at, value
    inner: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []
    for key, more in list(enumerate(value[:1])) if isinstance(value, list) else inner:
        yield from places(more, (*at, key))


FREE = {"left_out", "groups", "hit_tokens", "why", "rows_rejected", "ttft_set_aside"}


def test_the_schema_names_every_field_and_no_other() -> None:
    """A field that is added anywhere is refused, and so is one that is missing."""
    document = json.loads(json_report.text_of(findings.report(findings.full()).to_dict()))
    records = [
        at for at, value in places(document)
        if isinstance(value, dict) and not (at and at[-1] in FREE)
    ]  # fmt: skip
    assert len(records) > 25
    validator = jsonschema.Draft202012Validator(schema())
    for at in records:
        broken = json.loads(json.dumps(document))
        inner = broken
        for step in at:
            inner = inner[step]
        inner["surprise"] = 1
        assert not validator.is_valid(broken), at
        del inner["surprise"]
        assert validator.is_valid(broken)
        inner.pop(next(iter(inner)))
        assert not validator.is_valid(broken), at


def test_both_schemas_say_the_same_of_the_findings() -> None:
    mine, other = schema(), json_report.schema()
    names = [name for name in other["$defs"] if name.startswith("prefix_")]
    assert set(names) - {"prefix_findings"} == set(mine["$defs"])
    for name in mine["$defs"]:
        assert mine["$defs"][name] == other["$defs"][name]
    fields = {f.name for f in dataclasses.fields(PrefixFindings)}
    assert set(other["$defs"]["prefix_findings"]["properties"]) == fields
    assert set(mine["properties"]) == fields | {"schema", "tool", "inputs", "warnings"}
    assert other["$defs"]["prefix_findings"]["properties"].items() <= mine["properties"].items()
    known = [
        cls for cls in vars(records_module).values()
        if dataclasses.is_dataclass(cls) and cls is not PrefixFindings
    ]  # fmt: skip
    told = {frozenset(part["properties"]) for part in mine["$defs"].values()}
    assert {frozenset(f.name for f in dataclasses.fields(cls)) for cls in known} == told


# --- in a diagnosis -------------------------------------------------------------------------------


def test_the_page_has_the_ladder_and_both_curves() -> None:
    found = findings.full()
    assert found.ladder is not None
    page = html.render(dataclasses.replace(diagnoses.sick(), prefix=found))
    bare = html.render(diagnoses.sick())
    for name in ("prefix_ladder", "prefix_capacity", "prefix_expiry"):
        assert page.count(f'id="plot-{name}"') == 1
        assert name not in bare
    assert "Where prompts break that should share a beginning" in page
    data = json.loads(re.search(r'id="charts">(.*?)</script>', page)[1])  # type: ignore[index]
    left, lost = data["prefix_ladder"]["data"]
    assert left["y"] == ["could be shared", *(rung.title for rung in found.ladder.rungs)]
    assert left["x"] == pytest.approx([100.0, *(100 * r.share for r in found.ladder.rungs)])
    # A bar and what is lost of it reach as far as the bar above, unless a rung gives back.
    for at in range(1, len(left["x"])):
        whole = left["x"][at] + lost["x"][at]
        assert whole == pytest.approx(max(left["x"][at - 1], left["x"][at]))
    optimal, lru = data["prefix_capacity"]["data"]
    assert all(a >= b for a, b in zip(optimal["y"], lru["y"], strict=True))
    assert data["prefix_capacity"]["layout"]["xaxis"]["type"] == "log"
    assert data["prefix_expiry"]["data"][0]["y"][-1] == pytest.approx(80.0)


def test_charts_of_what_is_not_known_are_left_out() -> None:
    assert [c.name for c in charts.charts(findings.coarse())] == ["prefix_ladder"]
    assert charts.charts(findings.nothing()) == []
    html.render(dataclasses.replace(diagnoses.sick(), prefix=findings.nothing()))


def test_a_diagnosis_has_a_short_section_below_its_first_screen() -> None:
    sick = diagnoses.sick()
    with_it = dataclasses.replace(sick, prefix=findings.full())
    before = diagnosis_terminal.render(sick).splitlines()
    after = diagnosis_terminal.render(with_it).splitlines()
    assert after[:24] == before[:24]
    at = next(n for n, line in enumerate(after) if line.startswith("Where reusable work is lost"))
    assert at > 24
    section = after[at : at + len(after) - len(before)]
    assert after[:at] + after[at + len(section) :] == before
    assert len(section) <= 16
    starts = ("could", "shared", "after", "actually")
    assert len([line for line in section if line.startswith(starts)]) == 6
    assert "nothing is counted there: capacity" in " ".join(section)
    assert "Where reusable work is lost" in diagnosis_markdown.render(with_it)
    silent = dataclasses.replace(sick, prefix=findings.silent())
    told = diagnosis_terminal.render(silent)
    assert "after capacity" not in told
    assert "nothing is counted there: expiry, capacity, routing" in squeezed_lines(told)
    none = dataclasses.replace(sick, prefix=findings.nothing())
    assert diagnosis_terminal.render(none).splitlines() == before


# --- prompts stay where they are ------------------------------------------------------------------

SECRET = "xylophone-garnet"


def quoted(found: PrefixFindings) -> list[str]:
    report = findings.report(found)
    return [
        terminal.render(report, 80), markdown.render(report), json.dumps(report.to_dict()),
        *(f(dataclasses.replace(diagnoses.sick(), prefix=found))
          for f in (html.render, diagnosis_terminal.render, diagnosis_markdown.render)),
    ]  # fmt: skip


def test_text_that_was_asked_for_is_quoted_and_clean() -> None:
    found = findings.full()
    first, *rest = found.breakers
    shown = dataclasses.replace(first, before=f"{SECRET} \x1b[31m 1", after=f"{SECRET} 2")
    texts = quoted(dataclasses.replace(found, breakers=(shown, *rest)))
    assert SECRET in texts[0]
    assert SECRET in texts[1]
    assert "\x1b" not in "".join(texts)


def talk(path: Path) -> str:
    """A log with text: a clock with a secret stands at the head of every system prompt."""
    rows = []
    for n in range(60):
        turns = [{"role": "user", "content": f"{SECRET} question {k} " * 40} for k in range(3)]
        for k in range(3):
            rows.append(
                {
                    "session_id": f"s{n}",
                    "start_time": 1_700_000_000 + 60 * n + 9 * k,
                    "input_tokens": 900 + 300 * k,
                    "output_tokens": 50,
                    "ttft_ms": 200 + 30 * k,
                    "messages": [
                        {
                            "role": "system",
                            "content": f"Now 2026-11-30 08:{n:02}:{9 * k:02}. "
                            + f"{SECRET} rules. " * 150,
                        },
                        *turns[: k + 1],
                    ],
                }
            )
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


def test_no_prompt_text_is_printed_unless_asked_for(tmp_path: Path) -> None:
    log = talk(tmp_path / "log.jsonl")
    targets = {form: tmp_path / f"out.{form}" for form in ("json", "markdown", "html")}
    for command, forms in (
        ("prefix", ("json", "markdown")),
        ("diagnose", ("json", "markdown", "html")),
    ):
        options = [word for form in forms for word in (f"--{form}", str(targets[form]))]
        result = run(command, log, *options)
        assert result.exit_code == 0, result.stderr
        for text in (result.stdout, *(targets[form].read_text() for form in forms)):
            assert "xylophone" not in text
            assert "garnet" not in text
    trace = tmp_path / "trace.jsonl"
    assert run("export", log, "-o", str(trace)).exit_code == 0
    assert "xylophone" not in trace.read_text()


# --- the commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["mooncake.jsonl", "weka.json", "healthy.jsonl", "flat.jsonl", "ollama.jsonl"]
)
def test_every_sample_is_told_and_its_document_keeps_to_the_schema(path: str) -> None:
    result = run("prefix", str(SAMPLES / path), "--json", "-")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
    assert document["schema"] == "ttftdoctor.prefix/1"
    shown = run("prefix", str(SAMPLES / path))
    assert shown.exit_code == 0
    assert squeezed(document["headline"])[1:] in squeezed(shown.stdout)
    said = json.loads(run("diagnose", str(SAMPLES / path), "--json", "-").stdout)
    jsonschema.validate(said, json_report.schema(), cls=jsonschema.Draft202012Validator)


def test_options_reach_the_ladder(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    result = run(
        "prefix", MOONCAKE, "--ttl", "5min", "--cache-tokens", "20k", "--replicas", "2",
        "--policy", "session_affinity", "--block-tokens", "1024", "--least-tokens", "2048",
        "--ms-per-1k-tokens", "60", "--gpu-hour-price", "2.5", "--kv-shape", "80x8x128x1",
        "--top", "2", "--json", str(target), "--quiet",
    )  # fmt: skip
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    said = json.loads(target.read_text())
    jsonschema.validate(said, schema(), cls=jsonschema.Draft202012Validator)
    limits = said["ladder"]["limits"]
    assert limits["ttl_s"] == 300
    assert limits["capacity_tokens"] == 20_000
    assert (limits["replicas"], limits["routing"]) == (2, "session_affinity")
    assert (limits["round_to_tokens"], limits["round_from_tokens"]) == (1024, 2048)
    assert said["capacity"]["kv_bytes_per_token"] == 2 * 80 * 8 * 128
    assert len(said["leaders"]["by_tokens"]) == 2
    lost = [rung["lost_tokens"] for rung in said["ladder"]["rungs"]]
    spent = [rung["lost_seconds"] for rung in said["ladder"]["rungs"]]
    assert spent == pytest.approx([0.06 * n / 1000 for n in lost])
    money = [rung["lost_money"] for rung in said["ladder"]["rungs"]]
    assert money == pytest.approx([2.5 / 3600 * s for s in spent])


def test_gigabytes_are_tokens_of_a_shape() -> None:
    result = run("prefix", MOONCAKE, "--cache-gb", "4", "--kv-shape", "llama-3.1-8b", "--json", "-")
    said = json.loads(result.stdout)
    assert said["ladder"]["limits"]["capacity_tokens"] == int(4e9 / (2 * 32 * 8 * 128 * 2))


def test_names_chosen_by_an_enemy_reach_no_form_raw(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[31m<b>"
    folder.mkdir()
    rows = [
        {
            "request_id": f"r{n}", "session_id": f"{bad}{n % 7}", "tenant": bad, "model": bad,
            "replica": f"{bad}{n % 2}", "start_time": 1_700_000_000 + n, "ttft_ms": 100 + n,
            "input_tokens": 64 + n % 3, "output_tokens": 5, "cached_tokens": 16 * (n % 4),
            "prefix_blocks": [n % 5, 100 + n % 5, 10_000 + n], "block_tokens": 16,
        }
        for n, bad in enumerate(text for text in BAD[:12] for _ in range(9))
    ]  # fmt: skip
    log = folder / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)) + "\n")
    target = tmp_path / "out.md"
    for extra in (["--markdown", str(target)], ["--json", "-"]):
        result = run("prefix", str(log), "--replicas", "2", *extra)
        assert result.exit_code == 0, result.stderr
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u200b\u2028]", result.stdout)
    text = re.sub(r"</?(details|summary)>", "", target.read_text(encoding="utf-8"))
    assert "<" not in text
    assert "://" not in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", text)
    assert "By tenant" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ttl", "soon"], ["--ttl", "5min"]),
        (["--ttl", "300"], ["--ttl", "wants a unit"]),
        (["--ttl", "0s"], ["--ttl", "above zero"]),
        (["--cache-tokens", "lots"], ["--cache-tokens", "3M"]),
        (["--cache-tokens", "-3M"], ["--cache-tokens"]),
        (["--cache-tokens", "0"], ["--cache-tokens", "at least one"]),
        (["--cache-tokens", "9" * 30], ["--cache-tokens", "less than"]),
        (["--cache-gb", "4"], ["--cache-gb", "--kv-shape"]),
        (["--cache-gb", "-4", "--kv-shape", "80x8x128"], ["--cache-gb", "above zero"]),
        (["--cache-gb", "nan", "--kv-shape", "80x8x128"], ["--cache-gb", "above zero"]),
        (["--cache-gb", "4", "--cache-tokens", "3M"], ["one of them"]),
        (["--kv-shape", "huge"], ["--kv-shape", "llama-3.1-70b"]),
        (["--policy", "random"], ["--policy", "--replicas"]),
        (["--policy", "best", "--replicas", "2"], ["'best'", "round_robin"]),
        (["--ms-per-1k-tokens", "-1"], ["--ms-per-1k-tokens", "above zero"]),
        (["--ms-per-1k-tokens", "nan"], ["--ms-per-1k-tokens", "above zero"]),
        (["--params", "7e9"], ["belong together"]),
        (["--prices", "--gpu-hour-price", "2"], ["--prices"]),
        (["--metrics-before", "page"], ["--metrics"]),
        (["--metrics", "no/such/page"], ["no/such/page"]),
        (["--tokenizer", "no/such/tokenizer.json"], ["no/such/tokenizer.json"]),
        (["--json", "-", "--markdown", "-"], ["standard output"]),
        (["--unit", "a=b"], ["--unit", "ns, us, ms, s"]),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], words: list[str]) -> None:
    refused(run("prefix", MOONCAKE, *arguments), *words)


@given(
    number=st.decimals(1, 900_000, places=2).map(str),
    unit=st.sampled_from(["", "k", "K", "M", "m", "G"]),
)
def test_sizes_as_people_write_them(number: str, unit: str) -> None:
    scale = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}[unit.lower()]
    got = tokens_of(f"{number}{unit}", "--cache-tokens")
    assert got is not None
    assert abs(got - float(number) * scale) <= 0.5


def test_sizes_with_separators_and_sizes_that_are_none() -> None:
    assert tokens_of("2_000_000", "-") == tokens_of("2,000,000", "-") == 2_000_000
    assert tokens_of(None, "-") is None
    for text in ("", "M", "3 MB", "1e6", "-1", "0.2", "3M\n3"):
        with pytest.raises(UsageError):
            tokens_of(text, "-")


# --- export ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["mooncake", "bailian"])
def test_an_exported_trace_has_the_same_ladder(tmp_path: Path, form: str) -> None:
    trace = tmp_path / "trace.jsonl.gz"
    result = run("export", MOONCAKE, "--format", form, "-o", str(trace))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "24 requests" in result.stderr
    was, now = (ttftdoctor.prefix(path).found for path in (MOONCAKE, trace))
    assert was.ladder is not None
    assert now.ladder is not None
    assert now.looked_at == was.looked_at
    assert now.ladder.rungs[0].hit_tokens == was.ladder.rungs[0].hit_tokens
    first = json.loads(gzip.decompress(trace.read_bytes()).splitlines()[0])
    assert first["hash_ids"] == list(range(len(first["hash_ids"])))


def test_export_to_standard_output_and_quietly() -> None:
    result = run("export", MOONCAKE, "-o", "-", "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == 24
    assert rows[0]["timestamp"] == 0
    even = run("export", MOONCAKE, "-o", "-", "--quiet", "--even-times").stdout.splitlines()
    gaps = [json.loads(line)["timestamp"] for line in even]
    assert max(gaps) == rows[-1]["timestamp"]
    steps = {b - a for a, b in itertools.pairwise(gaps)}
    assert max(steps) - min(steps) <= 1


def test_exports_that_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(Path(MOONCAKE).read_bytes())
    refused(run("export", str(log), "-o", str(log)), "over the log")
    assert log.read_bytes() == Path(MOONCAKE).read_bytes()
    refused(run("export", str(log), "--format", "nonsense", "-o", "-"), "nonsense", "bailian")
    refused(run("export", str(log), "-o", str(tmp_path / "no" / "x")), "cannot write")
    refused(run("export", str(SAMPLES / "healthy.jsonl"), "-o", "-"), "prefix_blocks")
    refused(run("export", "no/such/log", "-o", "-"), "no/such/log")

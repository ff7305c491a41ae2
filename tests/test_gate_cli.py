"""The gate as CI runs it: real processes, their exit codes, and the files that CI systems take.

Logs are simulated: one service twice, the same with dearer prefill, and with longer prompts.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.gate import flow
from ttftdoctor.gate.rules import Policy, Rule
from ttftdoctor.report.json_report import schema

ROOT = Path(__file__).parents[1]
SCENARIO = """
title = "Chats on two replicas"
[causes]
primary = "healthy"
[load]
utilisation = 0.05
[[server]]
model = "chat-70b"
replicas = 2
ms_per_1k = {ms_per_1k}
ms_per_1k_per_1k = 1
hit_ms_per_1k = 1
decode_ms = 20
decode_ms_per_running = 0.1
[[traffic]]
name = "chat"
sessions = {sessions}
turns = {{ median = 6, sigma = 0.4, min = 2, max = 20 }}
system_tokens = 1000
user_tokens = {{ median = {user}, sigma = 0.8, min = 5, max = 4000 }}
document_tokens = {{ median = {document}, sigma = 0.6, min = 100, max = 20000 }}
document_first = 0.6
document_later = 0.2
output_tokens = {{ median = 120, sigma = 0.6, min = 5, max = 1500 }}
think_s = {{ median = 30, sigma = 0.7, min = 2, max = 400 }}
[gateway]
ms = 30
jitter_ms = 4
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def command(*words: str, cwd: Path, env: dict[str, str] | None = None) -> Done:
    """Run ttftdoctor as a user does, in a process and a folder of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    done = subprocess.run(
        [sys.executable, "-m", "ttftdoctor", *words],
        capture_output=True, text=True, timeout=240, check=False, cwd=cwd,
        env={**clean, "PYTHONIOENCODING": "utf-8", **(env or {})},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs, a baseline and, above it, the end of the search for a policy."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / ".git").mkdir()
    kinds = {
        "main": {"ms_per_1k": 150, "user": 200, "document": 2000, "sessions": 200},
        "slow": {"ms_per_1k": 225, "user": 200, "document": 2000, "sessions": 200},
        "long": {"ms_per_1k": 150, "user": 250, "document": 2500, "sessions": 200},
        "few": {"ms_per_1k": 150, "user": 200, "document": 2000, "sessions": 20},
    }
    for name, values in kinds.items():
        (folder / f"{name}.toml").write_text(SCENARIO.format(**values))
    for kind, seed, name in (
        ("main", 1, "good"), ("main", 2, "again"), ("slow", 3, "slow"), ("long", 4, "long"),
        ("few", 5, "few"),
    ):  # fmt: skip
        done = command("simulate", f"{kind}.toml", "-o", f"{name}.jsonl", "--seed", str(seed),
                       cwd=folder)  # fmt: skip
        assert done.code == 0, done.err
    rows = (folder / "again.jsonl").read_text().replace("chat-70b", "chat-8b")
    (folder / "other.jsonl").write_text(rows)
    done = command("baseline", "good.jsonl", "-o", "ttft-baseline.json", "--label", "main",
                   cwd=folder)  # fmt: skip
    assert done.code == 0, done.err
    return folder


def check(place: Path, *words: str, env: dict[str, str] | None = None) -> Done:
    return command("check", *words, "--baseline", "ttft-baseline.json", cwd=place, env=env)


def refused(place: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What the command says where it must not work: exit code 2, without a process of its own."""
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr


# --- exit codes -----------------------------------------------------------------------------------


def test_a_regression_is_red(place: Path) -> None:
    done = check(place, "slow.jsonl")
    assert done.code == 1, done.out
    assert " FAIL " in done.out
    assert re.search(r"prefill costs 2\d\d ms per 1,000 tokens instead of 1\d\d ms", done.out)


@pytest.mark.parametrize("name", ["again", "long"])
def test_another_day_and_longer_prompts_are_green(place: Path, name: str) -> None:
    done = check(place, f"{name}.jsonl")
    assert done.code == 0, done.out
    assert " FAIL " not in done.out


def test_longer_prompts_look_slower_to_a_plain_comparison(place: Path) -> None:
    """The gate is not green because nothing happened."""
    done = check(place, "long.jsonl", "--json", "-")
    mean = next(m for m in json.loads(done.out)["metrics"] if m["metric"] == "ttft_mean")
    assert mean["raw_change_share"] > 0.1
    assert abs(mean["change_share"]) < mean["raw_change_share"] / 2


def test_what_cannot_be_told_is_red_under_a_strict_policy_only(place: Path) -> None:
    text = '[gate]\ninconclusive = "{}"\n[[gate.metric]]\nname = "ttft_p95"\nlimit = "1%"\n'
    for word, code in (("pass", 0), ("fail", 3)):
        (place / "strict.policy.toml").write_text(text.format(word))
        done = check(place, "few.jsonl", "--policy", "strict.policy.toml")
        assert done.code == code, done.out
        assert " INCONCLUSIVE " in done.out


def test_another_model_is_no_comparison(place: Path) -> None:
    done = check(place, "other.jsonl")
    assert done.code == 4, done.out
    assert " INVALID " in done.out
    assert "models differ" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.jsonl"], "no.jsonl"),
        (["again.jsonl", "--policy", "no.toml"], "cannot read the policy"),
        (["again.jsonl", "--slo-ttft", "800"], "wants a unit"),
        (["again.jsonl", "--warm-up", "soon"], "--warm-up wants a time"),
        (["again.jsonl", "--junit", "x.xml", "--sarif", "x.xml"], "--junit and --sarif"),
        (["again.jsonl", "--json", "-", "--markdown", "-"], "standard output"),
        (["again.jsonl", "--json", "again.jsonl"], "written over what is read"),
        (["again.jsonl", "--json", "ttft-baseline.json"], "written over what is read"),
        (["again.jsonl", "--json", "-", "--github"], "--github prints to standard output"),
        (["again.jsonl", "--json", "no/such/folder/x.json"], "cannot write the report"),
    ],
)
def test_what_is_wrong_is_2(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    err = refused(place, monkeypatch, "check", *words, "--baseline", "ttft-baseline.json")
    assert err.startswith("error: ")
    assert said in err


def test_check_wants_a_baseline(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--baseline" in refused(place, monkeypatch, "check", "again.jsonl")
    done = command("check", "again.jsonl", "--baseline", "no.json", cwd=place)
    assert (done.code, "no.json" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("baseline/1", "baseline/9", 1), "another version"),
        (lambda text: text[: len(text) // 2], "no JSON document"),
        (lambda text: text.replace('"runs"', '"sprints"', 1), "damaged"),
    ],
)
def test_a_damaged_baseline_is_2(
    place: Path, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    text = (place / "ttft-baseline.json").read_text()
    (place / "damaged.json").write_text(change(text))
    err = refused(place, monkeypatch, "check", "again.jsonl", "--baseline", "damaged.json")
    assert said in err


def test_the_exit_codes_stand_in_the_help(place: Path) -> None:
    done = command("check", "--help", cwd=place)
    text = " ".join(done.out.split())
    for words in ("0 pass", "1 regression", "2 wrong usage", "3 inconclusive", "4 invalid"):
        assert words in text


def test_a_reader_that_goes_away_does_not_turn_red_to_green(place: Path) -> None:
    words = [sys.executable, "-m", "ttftdoctor", "check", "slow.jsonl", "--baseline",
             "ttft-baseline.json"]  # fmt: skip
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, cwd=place,
                              timeout=240, check=False)  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


# --- files ----------------------------------------------------------------------------------------


def test_every_file_at_once(place: Path) -> None:
    done = check(place, "slow.jsonl", "--json", "o.json", "--markdown", "o.md", "--junit", "o.xml",
                 "--sarif", "o.sarif", "--codequality", "o.cq.json", "--quiet")  # fmt: skip
    assert (done.code, done.out) == (1, "")
    document = json.loads((place / "o.json").read_text())
    jsonschema.validate(document, schema("check-1"), cls=jsonschema.Draft202012Validator)
    assert (document["outcome"], document["exit_code"]) == ("fail", 1)
    assert document["moved"][0]["cause"] == "prefill_slope"
    assert (place / "o.md").read_text().startswith("### 🔴 FAIL: ")
    suite = ET.parse(place / "o.xml").getroot().find("testsuite")
    assert suite is not None
    assert int(suite.get("failures", "0")) >= 1
    results = json.loads((place / "o.sarif").read_text())["runs"][0]["results"]
    assert "ttft_mean" in {result["ruleId"] for result in results}
    issues = json.loads((place / "o.cq.json").read_text())
    assert "critical" in {issue["severity"] for issue in issues}


def test_on_github_nothing_that_is_printed_can_command_the_runner(place: Path) -> None:
    summary = place / "summary.md"
    summary.write_text("before\n")
    done = check(place, "slow.jsonl", "--github", env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert done.code == 1
    lines = done.out.splitlines()
    first = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", lines[0])
    assert first is not None
    end = lines.index(f"::{first[1]}::")
    assert not [line for line in lines[1:end] if line.lstrip().startswith("::")]
    assert all(re.match(r"::(error|notice|warning) title=", line) for line in lines[end + 1 :])
    assert lines[end + 1].startswith("::error title=TTFT gate%3A FAIL::")
    assert summary.read_text().startswith("before\n## 🔴 TTFT gate, FAIL: ")


def test_a_summary_that_cannot_be_written_does_not_change_the_answer(place: Path) -> None:
    done = check(place, "again.jsonl", "--github", env={"GITHUB_STEP_SUMMARY": str(place)})
    assert done.code == 0
    assert "cannot write the summary" in done.err


def test_the_baseline_file(place: Path) -> None:
    text = (place / "ttft-baseline.json").read_text()
    assert len(text.encode()) <= 200_000
    document = json.loads(text)
    jsonschema.validate(document, schema("baseline-1"), cls=jsonschema.Draft202012Validator)
    assert document["label"] == "main"
    smallest = ttftdoctor.baseline(str(place / "ttft-baseline.json")).fit_in(1000).to_dict()
    jsonschema.validate(smallest, schema("baseline-1"), cls=jsonschema.Draft202012Validator)
    document["extra"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema("baseline-1"))


def test_baselines_add_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command("baseline", "ttft-baseline.json", "again.jsonl", "-o", "two.json", cwd=place)
    assert done.code == 0, done.err
    assert "2 runs" in done.out
    piped = command("baseline", "good.jsonl", "again.jsonl", "--runs", "-o", "-", cwd=place)
    assert len(json.loads(piped.out)["runs"]) == 2
    together = command("baseline", "good.jsonl", "again.jsonl", "-o", "-", cwd=place)
    assert len(json.loads(together.out)["runs"]) == 1
    said = refused(place, monkeypatch, "baseline", "good.jsonl", "-o", "good.jsonl")
    assert "written over what is read" in said
    # A glob stands for its files, of whatever kind.
    (place / "runs").mkdir()
    for name in ("good.jsonl", "again.jsonl", "ttft-baseline.json"):
        (place / "runs" / name).write_bytes((place / name).read_bytes())
    # Of good.jsonl and the baseline that was made of it, one counts.
    assert ttftdoctor.baseline("runs/*", runs=True).runs == 2
    copied = command("baseline", "good.jsonl", "ttft-baseline.json", "-o", "one.json", cwd=place)
    assert copied.code == 0
    assert len(json.loads((place / "one.json").read_text())["runs"]) == 1
    assert ttftdoctor.baseline("runs/*").runs == 2
    assert ttftdoctor.baseline("runs/*.jsonl").runs == 1


# --- the policy -----------------------------------------------------------------------------------


def test_the_policy_of_the_folder_is_used_and_named(place: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    (tmp_path / "ttftdoctor.toml").write_text('[[gate.metric]]\nname = "decode_per_token"\n')
    logs = [str(place / "slow.jsonl"), "--baseline", str(place / "ttft-baseline.json")]
    done = command("check", *logs, "--json", "-", cwd=tmp_path / "deep")
    document = json.loads(done.out)
    assert document["policy"] == os.path.join("..", "ttftdoctor.toml")
    assert [m["metric"] for m in document["metrics"]] == ["decode_per_token"]
    assert document["outcome"] != "fail"
    (tmp_path / "ttftdoctor.toml").write_text("[gate]\nlimit = 1\n")
    broken = command("check", *logs, cwd=tmp_path / "deep")
    assert broken.code == 2
    assert "ttftdoctor.toml line 2, gate.limit" in broken.err


def test_a_budget_is_held_and_broken(place: Path) -> None:
    (place / "budget.toml").write_text(
        "[gate]\ndefaults = false\n[gate.budgets]\n"
        'loose = "ttft_mean < 60s at input <= 32000"\ntight = "ttft_mean < 1ms"\n'
    )
    done = check(place, "again.jsonl", "--policy", "budget.toml", "--json", "-")
    assert done.code == 1
    outcomes = {
        m["budget"].partition(":")[0]: m["outcome"] for m in json.loads(done.out)["metrics"]
    }
    assert outcomes == {"loose": "pass", "tight": "fail"}


def test_a_target_adds_goodput_and_attainment(place: Path) -> None:
    done = check(place, "slow.jsonl", "--slo-ttft", "300ms", "--json", "-")
    metrics = {m["metric"]: m for m in json.loads(done.out)["metrics"]}
    assert {"goodput", "attainment"} <= metrics.keys()
    assert metrics["attainment"]["change"] < 0


# --- from Python ----------------------------------------------------------------------------------


def test_from_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    log = ttftdoctor.read("again.jsonl")
    base = ttftdoctor.baseline("good.jsonl", label="v1")
    found = ttftdoctor.check(log, base)
    assert found.baseline.label == "v1"
    assert found.policy is None
    assert found.outcome in ("pass", "inconclusive")
    one = ttftdoctor.check(log, [base], policy=Policy((Rule("decode_per_token"),)))
    assert [m.metric for m in one.metrics] == ["decode_per_token"]
    with pytest.raises(UsageError, match="no log"):
        ttftdoctor.check([], base)


def test_seconds_that_are_set_aside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    log = ttftdoctor.read("again.jsonl")
    start = log.requests["start"].to_numpy()
    early = int((start < start.min() + 60_000_000).sum())
    assert early > 5
    (sketch,) = ttftdoctor.baseline(log, warm_up=60.0).sketches
    assert sketch.facts.warm_up == early
    assert sketch.ttft.n == log.requests.height - early
    (everything,) = ttftdoctor.baseline(log, warm_up=False).sketches
    assert (everything.facts.warm_up, everything.ttft.n) == (0, log.requests.height)


def test_a_file_that_only_looks_like_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"schema":"ttftdoctor.baseline/1","label":"\xff"}')
    assert flow.is_baseline(path)
    with pytest.raises(InputError, match="UTF-8"):
        flow.read_baseline(path)
    assert not flow.is_baseline(tmp_path)
    assert not flow.is_baseline(tmp_path / "none.json")
    path.write_text('["ttftdoctor.baseline/1"]')
    assert not flow.is_baseline(path)


# --- what CI systems run --------------------------------------------------------------------------


def loaded(name: str) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def options() -> set[str]:
    """The options that ``check`` knows."""
    command_ = get_command(app).commands["check"]  # type: ignore[attr-defined]
    return {name for parameter in command_.params for name in parameter.opts}


def act(place: Path, **inputs: str) -> tuple[Done, dict[str, str]]:
    """Run the step of the action that checks, with the tool where its first step puts it."""
    step = loaded("action.yml")["runs"]["steps"][1]
    assert step["id"] == "check"
    runner = place / "runner"
    tools = runner / "ttftdoctor" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    tool = tools / "ttftdoctor"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ttftdoctor "$@"\n')
    tool.chmod(0o755)
    (tools / "python").unlink(missing_ok=True)
    (tools / "python").symlink_to(sys.executable)
    outputs = runner / "outputs"
    outputs.write_text("")
    given = dict.fromkeys(step["env"], "") | inputs
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        capture_output=True, text=True, timeout=240, check=False, cwd=place,
        env={"PATH": os.environ["PATH"], "RUNNER_TEMP": str(runner),
             "GITHUB_OUTPUT": str(outputs), **given},
    )  # fmt: skip
    pairs = (line.partition("=") for line in outputs.read_text().splitlines())
    return Done(done.returncode, done.stdout, done.stderr), {k: v for k, _, v in pairs}


def test_the_action_is_red_for_a_regression_and_green_without(place: Path) -> None:
    done, outputs = act(place, LOGS="slow.jsonl", BASELINE="ttft-baseline.json",
                        ARGS="--junit 'with space.xml' --slo-ttft 2s")  # fmt: skip
    assert done.code == 1, done.err
    assert (outputs["outcome"], outputs["exit-code"]) == ("fail", "1")
    assert json.loads(Path(outputs["report"]).read_text())["outcome"] == "fail"
    assert "::error title=TTFT gate%3A FAIL::" in done.out
    assert (place / "with space.xml").exists()
    done, outputs = act(place, LOGS="again.jsonl\n", BASELINE="\nttft-baseline.json\n")
    assert done.code == 0, done.err
    assert outputs["exit-code"] == "0"
    assert outputs["outcome"] in ("pass", "inconclusive")


def test_the_action_says_so_where_nothing_can_be_read(place: Path) -> None:
    done, outputs = act(place, LOGS="no.jsonl", BASELINE="ttft-baseline.json")
    assert done.code == 2
    assert (outputs["outcome"], outputs["exit-code"]) == ("error", "2")


def test_an_input_of_the_action_is_no_option_and_no_command(place: Path) -> None:
    done, _ = act(place, LOGS="--help\n$(touch pwned)", BASELINE="ttft-baseline.json")
    assert done.code == 2
    assert not (place / "pwned").exists()


def test_the_action_fits_together() -> None:
    action = loaded("action.yml")
    assert action["runs"]["using"] == "composite"
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name in action["inputs"]:
        assert f"${{{{ inputs.{name} }}}}" in text
    for step in action["runs"]["steps"]:
        # An input that were pasted into a script could run anything.
        assert "${{" not in step["run"]
        for name in step["env"]:
            assert f"${name}" in step["run"]
    written = set(re.findall(r'echo "([\w-]+)=', text))
    assert written == set(action["outputs"])
    for output in action["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.check\.outputs\.([\w-]+) \}\}", output["value"])


def test_the_hook_runs(place: Path) -> None:
    (hook,) = loaded(".pre-commit-hooks.yaml")
    assert hook["pass_filenames"] is False
    words = shlex.split(hook["entry"])
    assert words[0] == "ttftdoctor"
    done = command(*words[1:], "slow.jsonl", "--baseline", "ttft-baseline.json", cwd=place)
    assert done.code == 1


def test_the_workflow_uses_what_the_action_has() -> None:
    workflow = loaded("examples/github-workflow.yml")
    steps = workflow["jobs"]["ttft"]["steps"]
    (ours,) = [step for step in steps if "ttftdoctor" in step.get("uses", "")]
    action = loaded("action.yml")
    assert ours["with"].keys() <= action["inputs"].keys()
    needed = {name for name, spec in action["inputs"].items() if spec.get("required")}
    assert needed <= ours["with"].keys()
    flags = {word for word in shlex.split(ours["with"]["args"]) if word.startswith("--")}
    assert flags <= options()
    text = (ROOT / "examples" / "github-workflow.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"steps\.ttft\.outputs\.([\w-]+)", text)) <= action["outputs"].keys()


def test_the_gitlab_example_runs(place: Path) -> None:
    script = loaded("examples/gitlab-ci.yml")["ttft"]["script"]
    (line,) = [line for line in script if line.startswith("ttftdoctor")]
    (place / "load-test.jsonl").write_bytes((place / "slow.jsonl").read_bytes())
    done = command(*shlex.split(line)[1:], cwd=place)
    assert done.code == 1
    reports = loaded("examples/gitlab-ci.yml")["ttft"]["artifacts"]["reports"]
    for name in reports.values():
        assert (place / name).exists()


def test_a_baseline_is_added_to_in_place(tmp_path: Path) -> None:
    logs = []
    for seed in (1, 2):
        logs.append(str(tmp_path / f"run{seed}.jsonl"))
        served = CliRunner().invoke(
            app, ["simulate", "healthy_chat", "--seed", str(seed), "-o", logs[-1]]
        )
        assert served.exit_code == 0, served.output
    kept = str(tmp_path / "ttft-baseline.json")
    first = CliRunner().invoke(app, ["baseline", logs[0], "--runs", "-o", kept])
    assert first.exit_code == 0, first.output
    added = CliRunner().invoke(app, ["baseline", kept, logs[1], "--runs", "-o", kept])
    assert added.exit_code == 0, added.output
    assert len(json.loads(Path(kept).read_text(encoding="utf-8"))["runs"]) == 2
    over = CliRunner().invoke(app, ["baseline", kept, logs[1], "-o", logs[1]])
    assert over.exit_code == 2
    assert "written over what is read" in over.output

"""The house: each module stands on one floor and imports from lower floors only.

Imports inside functions and those under ``TYPE_CHECKING`` count for the direction as well: who
needs the other's type knows it. They do not count where the question is what gets loaded.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ttftdoctor

PACKAGE = Path(ttftdoctor.__file__).parent

#: The floors, from ground to roof; ``FOLDER.*`` stands for the members of a folder, and a folder's
#: own name for its ``__init__`` (the contract). ``measure`` is a staircase of its own.
FLOORS = (
    "language",
    "errors version units stats sources.wrappings treatment table chains rendering prefixes "
    "prefixes.records measure measure.kernels measure.turns mapping.fields switches outputs",
    "diagnosis intake.layers sources.addresses zones averages",
    "sources.piles sources.stores sources.web sources.databases sources.sqlite_rows "
    "sources.archives local_time",
    "sources prompts evidence hardware contrasts contrasts.records comparisons comparisons.records "
    "gate gate.records",
    "mapping sources.known",
    "readers mapping.manner causes remedies report measure.trie simulator.scenario simulator.cache "
    "prefixes.document gate.rules gate.metrics gate.words",
    "measure.caches prefixes.kinds prefixes.texts prefixes.words gate.reports gate.policy reading "
    "spans manual pages pages.markup",
    "experiment lost_reuse splitting verdict measure.links contrasts.select prefixes.pairs "
    "prefixes.stuck sglang manual.terminal outputs.csv_tables outputs.openmetrics "
    "pages.figures pages.heading contention",
    "measure.rows simulator.workload prefixes.sections prefixes.breakers pages.shell pages.proof "
    "pages.intervals pages.turns pages.tokens pages.ledger pages.load pages.gains pages.waste",
    "measure.load measure.onset measure.stamps simulator.server simulator.treat prefixes.charts "
    "gate.estimate gate.warmup gate.trend",
    "measure.lines measure.queues simulator.faults pages.opening pages.reuse",
    "measure.slots pages.review pages.png",
    "measure.ledger measure.servers simulator.truth pages.images",
    "measure.outages measure.pace measure.refusals measure.splitters",
    "measure.replay measure.reuse measure.signs measure.splits measure.spread",
    "extracts extracts.facts extracts.survey extracts.runs",
    "extracts.stretches extracts.tally extracts.prompts",
    "extracts.gather extracts.shared extracts.whole",
    "extracts.spool",
    "measure.worst measure.mix prices simulator.log",
    "readers.* causes.* remedies.* report.*",
    "catalog simulator gate.reports.* mapping.proposal",
    "intake.mixed intake.kept guide pages.pictures gate.page",
    "intake.account",
    "intake gate.forms gate.packed",
    "contrasts.columns contrasts.words prefixes.export inspection.invariants",
    "contrasts.rank contrasts.terminal choose intake.again",
    "measure.weigh comparisons.hindcast extracts.chosen",
    "comparisons.judge examine prefixes.ladder prefixes.metrics gate.even",
    "prefixes.kv prefixes.limits prefixes.ideal prefixes.expiry prefixes.leaders "
    "gate.sketch gate.seen",
    "prefixes.capacity prefixes.rungs gate.baseline gate.lines",
    "prefixes.costs prefixes.routing prefixes.reconcile gate.judge gate.moved",
    "prefixes.content prefixes.broken gate.history",
    "prefixes.exact gate.history_report",
    "prefixes.look",
    "comparisons.portrait comparisons.report inspection study prefixes.terminal prefixes.markdown",
    "engines",
    "engines.beyond engines.workers",
    "engines.local",
    "engines.shuffles",
    "engines.spark",
    "run",
    "comparisons.flow comparisons.page contrasts.flow prefixes.flow conversion inspection.screen",
    "api gate.flow watching watching.follow watching.minutes watching.store watching.taken",
    "watching.flow",
    "watching.screen",
    "gate.shelf cli.options cli.values cli.output cli.screens",
    "cli.guard",
    "cli.diagnosing cli.comparing cli.prefixing cli.gating cli.handing_on cli.simulating "
    "cli.consulting cli.watching",
    "cli",
    "__main__ __init__",
)
FOLDERS = ("readers", "causes", "remedies", "report", "gate.reports")
HEAVY = {
    "polars", "plotly", "numpy", "scipy", "pandas", "pyarrow", "zstandard", "genai_prices", "numba",
    "prometheus_client", "tokenizers",
}  # fmt: skip


def named(path: Path) -> str:
    """``measure.rows`` for a file; a folder's ``__init__`` has the folder's name."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


FILES = {named(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def floor_of(module: str) -> int:
    folder = module.rpartition(".")[0]
    for number, rooms in enumerate(FLOORS, start=1):
        if module in rooms.split() or f"{folder}.*" in rooms.split():
            return number
    raise LookupError(module)


def is_type_test(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def walk(node: ast.AST, *, types: bool, lazy: bool) -> Iterator[ast.AST]:
    """All nodes, or only those that are run when the module is loaded."""
    for child in ast.iter_child_nodes(node):
        if is_type_test(child) and not types:
            continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not lazy:
            continue
        yield child
        yield from walk(child, types=types, lazy=lazy)


def imports(module: str, *, types: bool = True, lazy: bool = True) -> set[str]:
    """Full names of what a module imports: ``polars``, ``ttftdoctor.measure.rows``."""
    found = set()
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    for node in walk(tree, types=types, lazy=lazy):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                ours = inner.removeprefix("ttftdoctor.")
                found.add(inner if ours in FILES and ours != inner else node.module)
    return found


def ours(module: str, *, types: bool = True, lazy: bool = True) -> set[str]:
    """The modules of this package among the imports."""
    found = {
        name.removeprefix("ttftdoctor.")
        for name in imports(module, types=types, lazy=lazy)
        if name.startswith("ttftdoctor")
    }
    assert found <= FILES.keys(), f"{module} imports {found - FILES.keys()}"
    return found


def reached(module: str, *, lazy: bool = True) -> set[str]:
    """Everything that a module loads, by however many steps; top-level names of foreign ones."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        for name in imports(todo.pop(), types=False, lazy=lazy):
            short = name.removeprefix("ttftdoctor.")
            if short in FILES and name != short:
                if short not in seen:
                    seen.add(short)
                    todo.append(short)
            else:
                seen.add(name.partition(".")[0])
    return seen


def test_every_module_has_one_place() -> None:
    """A new module must be given a floor, and a name that is gone must leave the table."""
    rooms = [room for floor in FLOORS for room in floor.split()]
    assert len(rooms) == len(set(rooms))
    for module in FILES:
        floor_of(module)
    for room in rooms:
        folder = room.removesuffix(".*")
        assert room in FILES or any(name.startswith(folder + ".") for name in FILES), room


@pytest.mark.parametrize("module", sorted(FILES))
def test_imports_run_down_only(module: str) -> None:
    up = {name for name in ours(module) if floor_of(name) >= floor_of(module)}
    assert not up, f"{module} (floor {floor_of(module)}) imports {sorted(up)}"


def test_the_law_is_not_empty() -> None:
    """The reading of imports itself works: these arrows are known to be there."""
    assert {"catalog", "examine", "verdict"} <= ours("study")
    assert {"measure.ledger", "measure.rows"} <= ours("examine")
    assert "prices" in ours("run") - ours("run", types=False)
    assert "run" in ours("cli.diagnosing") - ours("cli.diagnosing", lazy=False)
    assert "cli.diagnosing" in ours("cli", lazy=False)
    assert "polars" in reached("measure.rows")


def test_members_never_import_a_sibling() -> None:
    for module in FILES:
        folder, _, name = module.rpartition(".")
        if folder in FOLDERS and name:
            siblings = {other for other in ours(module) if other.startswith(folder + ".")}
            assert not siblings, module


def test_a_report_knows_no_cause_and_no_remedy() -> None:
    for module in FILES:
        if module.split(".")[0] == "report":
            known = {name.split(".")[0] for name in reached(module)}
            assert not known & {
                "causes",
                "remedies",
                "lost_reuse",
                "contention",
                "verdict",
                "catalog",
            }, module


def test_judgement_never_sees_a_frame() -> None:
    """Causes, remedies and reports get records: no polars, no array, no measuring, no file."""
    for module in FILES:
        if module.split(".")[0] in ("causes", "remedies", "report") or module == "verdict":
            known = {name.split(".")[0] for name in reached(module)}
            assert not known & (HEAVY | {"measure", "sources", "table"}), module


def test_measuring_never_sees_a_file() -> None:
    for module in FILES:
        if module.split(".")[0] == "measure":
            known = {name.split(".")[0] for name in reached(module)}
            assert not known & {"sources", "readers", "intake", "pathlib", "io", "os"}, module


def test_only_the_command_line_prints_and_exits() -> None:
    for module, path in FILES.items():
        if module in ("cli", "cli.output", "cli.guard"):
            continue
        assert module.startswith("cli.") or "typer" not in imports(module), module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{module} line {getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in (
                    "print",
                    "exit",
                    "quit",
                    "input",
                ), where
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                assert name not in ("sys.exit", "sys.stdout", "sys.stderr", "os._exit"), where
            if isinstance(node, ast.Name):
                assert node.id != "SystemExit", where


def test_only_sources_opens_files() -> None:
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                opens = node.func.id == "open" and module.partition(".")[0] != "sources"
                assert not opens, f"{module} line {node.lineno}"


def test_names_of_modules_are_put_together_by_the_catalog_alone() -> None:
    """A name worked out at run time would hide an arrow from this test."""
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
                (name,) = node.args
                fixed = isinstance(name, ast.Constant) and not str(name.value).startswith("ttft")
                assert fixed or module in ("catalog", "__init__"), f"{module} line {node.lineno}"


@pytest.mark.parametrize("name", ["ttftdoctor", "ttftdoctor.cli"])
def test_importing_loads_nothing_heavy(name: str) -> None:
    code = f"import {name}, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {module.split(".")[0] for module in json.loads(done.stdout)}
    assert "ttftdoctor" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("arguments", [["--help"], ["diagnose", "--help"], ["roofline", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ttftdoctor", *arguments],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "Usage" in done.stdout
    loaded = {
        line.rpartition("|")[2].strip().split(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert {"typer", "ttftdoctor"} <= loaded
    assert not loaded & HEAVY

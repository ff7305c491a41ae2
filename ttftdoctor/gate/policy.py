"""The policy as people write it: ``ttftdoctor.toml``, or ``[tool.ttftdoctor]`` of a pyproject.toml.

The file is looked for in the working directory and above, up to the root of a repository.
Whatever is written wrongly is refused with its line, its key and what there is to choose from: a
gate that skips a limit with a typing error in it would pass for the wrong reason.

Limits are a share of the baseline (``"10%"``), points of a share (``"5 points"``) or an amount
(``"20ms"``). A regression exceeds both the share and the amount: ``limit = "10%"`` keeps the
built-in amount unless ``floor`` gives another; an amount as ``limit`` stands alone.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ttftdoctor.errors import UsageError
from ttftdoctor.gate.metrics import METRICS
from ttftdoctor.gate.records import Scope
from ttftdoctor.gate.rules import Budget, Policy, Rule, default_policy
from ttftdoctor.mapping import TABLES
from ttftdoctor.units import UNIT_WORDS, US_PER

FILE = "ttftdoctor.toml"
PROJECT = "pyproject.toml"
#: Metrics that count requests against a target for TTFT.
OF_SLO = ("goodput", "attainment")

_GATE = ("inconclusive", "alpha", "warm_up", "defaults", "metric", "slo", "budgets")
_METRIC = ("name", "limit", "floor", "route", "model")
_SLO = ("ttft", "attainment")
_NUMBER = r"(\d+\.?\d*|\.\d+)"
_AMOUNT = re.compile(rf"{_NUMBER}\s*(%|[A-Za-zµμ/]*)")
_BUDGET = re.compile(
    r"(?P<metric>\w+)\s*(?P<sign><=?|>=?)\s*(?P<value>[\d.]+\s*(?:%|[A-Za-zµμ/]*))"
    r"(?:\s+at\s+input\s*<=\s*(?P<most>[\d,_]{1,18}))?"
    r"(?:\s+on\s+(?P<scope>.+))?"
)
_SCOPE = re.compile(r"(route|model)\s+(\"[^\"]+\"|[^\s\"]+)(?:\s*,\s*|\s+and\s+|\s*$)")
_BUDGET_HELP = "write 'ttft_p95 < 800ms at input <= 8000 on route /chat'; 'at' and 'on' may go"


@dataclass(frozen=True)
class Asked:
    """What a policy file asks for.

    ``warm_up``: True finds the slow head of each run, False keeps everything, a number sets so
    many seconds of each run aside.
    """

    policy: Policy
    warm_up: bool | float = True


def find_policy(folder: Path) -> Path | None:
    """The policy file that holds in a folder: the nearest one, not beyond a repository's root.

    Of the two names in one folder ``ttftdoctor.toml`` goes first; a ``pyproject.toml`` counts if
    it has ``[tool.ttftdoctor]``.
    """
    for place in (folder, *folder.parents):
        own, project = place / FILE, place / PROJECT
        if own.is_file() and not _only_reads(own):
            return own
        # A project that cannot be read is not ours to complain about until it is named.
        if project.is_file() and _names_us(project):
            return project
        if (place / ".git").exists():
            return None
    return None


def _names_us(path: Path) -> bool:
    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
        return "ttftdoctor" in tool and not _of_others(tool["ttftdoctor"])
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def _only_reads(path: Path) -> bool:
    """Whether the file says how logs are read, and nothing of the gate."""
    try:
        return _of_others(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return False  # told when it is read


def _of_others(tables: Any) -> bool:
    return isinstance(tables, dict) and bool(tables) and set(tables) <= set(TABLES)


def read_policy(path: Path, *, slo_ttft_s: float | None = None, shown: str | None = None) -> Asked:
    """Read a policy file.

    Parameters
    ----------
    slo_ttft_s
        Target for TTFT in seconds; goes before that of the file.
    shown
        How the file is named in messages and reports; its path by default.

    Raises
    ------
    UsageError
        If it cannot be read, or says anything that is not understood.
    """
    name = shown or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError("cannot read the policy", where=name, why=error.strerror) from None
    except UnicodeDecodeError:
        raise UsageError("the policy is no UTF-8 text", where=name) from None
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("the policy is no TOML", where=name, why=str(error)) from None
    prefix = ""
    if path.name == PROJECT or ("gate" not in document and "tool" in document):
        prefix = "tool.ttftdoctor."
        tool = document.get("tool")
        document = tool.get("ttftdoctor", {}) if isinstance(tool, dict) else {}
    reader = _Reader(name, text, prefix)
    if not isinstance(document, dict) or "gate" not in document:
        raise UsageError(
            "the policy has no [gate] table", where=name, help=f"it begins with [{prefix}gate]"
        )
    reader.known(document, "", ("gate", *TABLES))
    return reader.gate(document["gate"], slo_ttft_s)


def policy_without_file(slo_ttft_s: float | None = None) -> Asked:
    """What holds where nobody wrote a policy; a target for TTFT adds its metrics."""
    policy = default_policy()
    if slo_ttft_s is not None:
        policy = replace(policy, rules=(*policy.rules, *_slo_rules(slo_ttft_s)))
    return Asked(policy)


def _slo_rules(slo_s: float) -> list[Rule]:
    return [Rule(metric, slo_s=slo_s) for metric in OF_SLO if metric in METRICS]


class _Reader:
    """One file: its values with the place of each for messages."""

    def __init__(self, name: str, text: str, prefix: str) -> None:
        self.name, self.prefix = name, prefix
        self.lines = _lines_of(text, prefix)

    # places and messages

    def where(self, key: str) -> str:
        """``ttftdoctor.toml line 7, gate.metric[2].limit``; without a line where it is unclear."""
        line = self.lines.get(key)
        return f"{self.name}{'' if line is None else f' line {line}'}, {self.prefix}{key}"

    def refuse(
        self, key: str, what: str, *, available: str | None = None, help: str | None = None
    ) -> UsageError:
        return UsageError(what, where=self.where(key), available=available, help=help)

    def known(self, table: Mapping[str, Any], at: str, names: Sequence[str]) -> None:
        """Refuse keys that nobody reads."""
        for key in table:
            if key not in names:
                full = f"{at}.{key}" if at else key
                raise self.refuse(full, "no such key", available=", ".join(names))

    def table(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refuse(key, f"must be a table, not {_kind(value)}")
        return value

    def text(self, value: Any, key: str, help: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.refuse(key, f"must be text, not {_kind(value)}", help=help)
        return value.strip()

    # the parts

    def gate(self, value: Any, slo_ttft_s: float | None) -> Asked:
        """All of ``[gate]``."""
        gate = self.table(value, "gate")
        self.known(gate, "gate", _GATE)
        inconclusive: Literal["pass", "fail"] = "pass"
        if gate.get("inconclusive", "pass") != "pass":
            if gate["inconclusive"] != "fail":
                raise self.refuse(
                    "gate.inconclusive", f"{gate['inconclusive']!r} is no choice",
                    available="pass, fail",
                )  # fmt: skip
            inconclusive = "fail"
        slo_s, attainment = self.slo(gate.get("slo", {}))
        slo_s = slo_ttft_s if slo_ttft_s is not None else slo_s
        rules = self.rules(gate, slo_s)
        budgets = [*self.budgets(gate.get("budgets", {}), slo_s)]
        if attainment is not None and slo_s is not None:
            text = f"slo: attainment > {100 * attainment:g}% of ttft <= {1e3 * slo_s:g}ms"
            budgets.append(Budget(text, "attainment", above=attainment, slo_s=slo_s))
        if not rules and not budgets:
            raise self.refuse("gate", "nothing is asked for", help="name a metric or a budget")
        policy = Policy(
            rules=tuple(rules), budgets=tuple(budgets), inconclusive=inconclusive,
            alpha=self.alpha(gate.get("alpha", 0.05)), source=self.name,
        )  # fmt: skip
        return Asked(policy, self.warm_up(gate.get("warm_up", "auto")))

    def alpha(self, value: Any) -> float:
        number = _number(value)
        if number is None or not 0.0 < number <= 0.5:
            raise self.refuse(
                "gate.alpha", "must be a number above 0 and at most 0.5",
                help="0.05 lets one check in twenty raise a false alarm at most",
            )  # fmt: skip
        return number

    def warm_up(self, value: Any) -> bool | float:
        if value == "auto":
            return True
        if _number(value) == 0.0:
            return False
        if isinstance(value, str):
            seconds = _duration(value)
            if seconds is not None:
                return seconds if seconds > 0 else False
        raise self.refuse(
            "gate.warm_up", f"{value!r} is no warm-up",
            help="write 'auto', a time such as '30s', or 0 to keep everything",
        )  # fmt: skip

    def slo(self, value: Any) -> tuple[float | None, float | None]:
        slo = self.table(value, "gate.slo")
        self.known(slo, "gate.slo", _SLO)
        target = attainment = None
        if "ttft" in slo:
            text = self.text(slo["ttft"], "gate.slo.ttft", "write a time such as '800ms'")
            target = _duration(text)
            if not target:
                raise self.refuse("gate.slo.ttft", f"{text!r} is no time", help="such as '800ms'")
        if "attainment" in slo:
            text = self.text(slo["attainment"], "gate.slo.attainment", "write it as '99%'")
            attainment = _per_cent(text)
            if attainment is None or not 0.0 < attainment < 1.0:
                raise self.refuse(
                    "gate.slo.attainment", f"{text!r} is no part of the requests",
                    help="write it as '99%'",
                )  # fmt: skip
        if attainment is not None and target is None:
            raise self.refuse("gate.slo", "attainment needs ttft, the target that is attained")
        return target, attainment

    def rules(self, gate: Mapping[str, Any], slo_s: float | None) -> list[Rule]:
        """What is compared with the baseline: what is named, and the built-in list where asked."""
        listed = gate.get("metric", [])
        if not isinstance(listed, list):
            raise self.refuse(
                "gate.metric", "must be a list of tables",
                help=f"write [[{self.prefix}gate.metric]]",
            )  # fmt: skip
        own = [self.rule(m, f"gate.metric[{n}]", slo_s) for n, m in enumerate(listed, 1)]
        seen: set[tuple[str, Scope]] = set()
        for at, rule in enumerate(own, 1):
            if (rule.metric, rule.scope) in seen:
                raise self.refuse(f"gate.metric[{at}]", f"{rule.metric} is named twice")
            seen.add((rule.metric, rule.scope))
        asked = gate.get("defaults", "metric" not in gate)
        if not isinstance(asked, bool):
            raise self.refuse("gate.defaults", "must be true or false")
        others = list(default_policy().rules) if asked else []
        if slo_s is not None:
            others += _slo_rules(slo_s)
        return [*own, *(r for r in others if (r.metric, r.scope) not in seen)]

    def rule(self, value: Any, key: str, slo_s: float | None) -> Rule:
        table = self.table(value, key)
        self.known(table, key, _METRIC)
        if "name" not in table:
            raise self.refuse(key, "a metric needs a name", available=", ".join(METRICS))
        metric = self.metric(table["name"], f"{key}.name", slo_s)
        share = amount = None
        if "limit" in table:
            share, amount = self.limit(table["limit"], f"{key}.limit", metric)
        if "floor" in table:
            if amount is not None:
                raise self.refuse(
                    f"{key}.floor", "the limit is an amount already",
                    help="a floor goes with a share",
                )  # fmt: skip
            below, amount = self.limit(table["floor"], f"{key}.floor", metric)
            if amount is None or below:
                raise self.refuse(f"{key}.floor", "a floor is an amount, such as '20ms'")
            share = METRICS[metric].limit_share if share is None else share
        elif share is not None:
            amount = METRICS[metric].limit
        elif amount is not None and METRICS[metric].limit_share is not None:
            share = 0.0
        scope = Scope(
            **{
                name: self.text(table[name], f"{key}.{name}", "the name as it stands in the log")
                for name in ("model", "route")
                if name in table
            }
        )
        of_slo = slo_s if metric in OF_SLO else None
        return Rule(metric, scope, limit_share=share, limit=amount, slo_s=of_slo)

    def metric(self, value: Any, key: str, slo_s: float | None) -> str:
        if not isinstance(value, str) or value not in METRICS:
            raise self.refuse(key, f"{value!r} is no metric", available=", ".join(METRICS))
        if value in OF_SLO and slo_s is None:
            raise self.refuse(
                key, f"{value} counts against a target", help="give gate.slo.ttft, or --slo-ttft"
            )
        return value

    def limit(self, value: Any, key: str, metric: str) -> tuple[float | None, float | None]:
        """A limit as a share of the baseline, or as an amount in the unit of the metric."""
        unit = METRICS[metric].unit
        text = self.text(value, key, f"write {_example(unit)}")
        match = _AMOUNT.fullmatch(text.removesuffix("points").removesuffix("point").strip())
        if match is None or not math.isfinite(float(match[1])):
            raise self.refuse(key, f"{text!r} is no limit", help=f"write {_example(unit)}")
        in_points = text.endswith(("point", "points"))
        if unit == "share":
            if not in_points or match[2]:
                raise self.refuse(
                    key, f"{metric} is a share and moves in points, not {text!r}",
                    help=f"write {_example(unit)}",
                )  # fmt: skip
            return None, float(match[1]) / 100
        if in_points:
            raise self.refuse(
                key, f"{metric} does not move in points", help=f"write {_example(unit)}"
            )
        if match[2] == "%":
            return float(match[1]) / 100, None
        return None, self.amount(text, key, metric)

    def amount(self, text: str, key: str, metric: str) -> float:
        """An amount in the unit of the metric."""
        unit = METRICS[metric].unit
        found: float | None = None
        if unit == "share":
            found = _per_cent(text)
        elif unit == "per_s":
            match = re.fullmatch(rf"{_NUMBER}\s*/\s*s", text)
            found = None if match is None else float(match[1])
        else:
            found = _duration(text)
            if found is not None and unit != "s":
                found *= 1e3
        if found is None or not math.isfinite(found):
            raise self.refuse(
                key, f"{text!r} is not in the unit of {metric}", help=f"write {_example(unit)}"
            )
        return found

    def budgets(self, value: Any, slo_s: float | None) -> list[Budget]:
        table = self.table(value, "gate.budgets")
        return [self.budget(name, text, slo_s) for name, text in table.items()]

    def budget(self, name: str, value: Any, slo_s: float | None) -> Budget:
        key = f"gate.budgets.{name}"
        text = self.text(value, key, _BUDGET_HELP)
        match = _BUDGET.fullmatch(text)
        if match is None:
            raise self.refuse(key, f"{text!r} is not understood", help=_BUDGET_HELP)
        metric = self.metric(match["metric"], key, slo_s)
        worse = METRICS[metric].worse
        if (match["sign"][0] == "<") != (worse == "up"):
            side = "below" if worse == "up" else "above"
            raise self.refuse(
                key, f"{metric} is bounded from {side}",
                help=f"write {metric} {'<' if worse == 'up' else '>'} …",
            )  # fmt: skip
        amount = self.amount(match["value"].strip(), key, metric)
        most = None if match["most"] is None else int(re.sub("[,_]", "", match["most"]) or 0)
        if most == 0:
            raise self.refuse(key, "no prompt has so few tokens", help=_BUDGET_HELP)
        return Budget(
            text=f"{name}: {text}",
            metric=metric,
            below=amount if worse == "up" else None,
            above=amount if worse == "down" else None,
            max_input_tokens=most,
            scope=self.scope(match["scope"], key),
            slo_s=slo_s if metric in OF_SLO else None,
        )

    def scope(self, text: str | None, key: str) -> Scope:
        """``route /chat``, ``model "a b"``, or both joined by a comma or ``and``."""
        found: dict[str, str] = {}
        rest = text or ""
        while rest:
            match = _SCOPE.match(rest)
            if match is None or match[1] in found:
                raise self.refuse(
                    key, f"'on {text}' is not understood",
                    help="write 'on route /chat' or 'on model m, route /chat'",
                )  # fmt: skip
            found[match[1]] = match[2].strip('"')
            rest = rest[match.end() :]
        return Scope(**found)


# --- values ---------------------------------------------------------------------------------------


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "an empty text" if not value.strip() else "text"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else "a date"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _duration(text: str) -> float | None:
    """Seconds of ``800ms`` or ``1.5 s``; None without a number and a unit of time."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2] not in UNIT_WORDS:
        return None
    return float(match[1]) * US_PER[UNIT_WORDS[match[2]]] / 1e6


def _per_cent(text: str) -> float | None:
    match = _AMOUNT.fullmatch(text.strip())
    return float(match[1]) / 100 if match is not None and match[2] == "%" else None


def _example(unit: str) -> str:
    return {
        "s": "'10%' or '20ms'",
        "ms": "'10%' or '2ms'",
        "ms_per_1k_tokens": "'10%' or '5ms' (per 1,000 tokens)",
        "share": "'5 points' (a budget: '80%')",
        "per_s": "'10%' or '0.5/s'",
    }[unit]


def _lines_of(text: str, prefix: str) -> dict[str, int]:
    """The line of each key, by its full name with lists counted from one.

    Good for messages: the parser keeps no places. A key within a text of several lines would
    fool it.
    """
    out: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*(\[\[?)\s*([\w.\-\s\"]+?)\s*\]\]?", line)
        key = re.match(r"\s*([\w.\-]+|\"[^\"]*\")\s*=", line)
        if head is not None:
            table = re.sub(r"[\s\"]", "", head[2])
            if head[1] == "[[":
                counts[table] = counts.get(table, 0) + 1
                table = f"{table}[{counts[table]}]"
            out.setdefault(table.removeprefix(prefix), number)
        elif key is not None:
            full = ".".join(part for part in (table, key[1].strip('"')) if part)
            out.setdefault(full.removeprefix(prefix), number)
    return out

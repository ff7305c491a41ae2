"""The policy file: what it may say, what it becomes, and how it refuses what is not understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttftdoctor.errors import TTFTDoctorError, UsageError
from ttftdoctor.gate.metrics import METRICS
from ttftdoctor.gate.policy import (
    OF_SLO,
    Asked,
    find_policy,
    policy_without_file,
    read_policy,
)
from ttftdoctor.gate.records import Scope
from ttftdoctor.gate.rules import DEFAULT_METRICS, Budget, Rule, default_policy

ROOT = Path(__file__).parents[1]
Parse = Callable[..., Asked]
Refuse = Callable[..., str]


@pytest.fixture
def parsed(tmp_path: Path) -> Parse:
    def read(text: str, name: str = "ttftdoctor.toml", **options: float) -> Asked:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_policy(path, shown=name, **options)

    return read


@pytest.fixture
def refused(parsed: Parse) -> Refuse:
    def read(text: str, *words: str, name: str = "ttftdoctor.toml") -> str:
        with pytest.raises(UsageError) as caught:
            parsed(text, name)
        said = str(caught.value)
        assert said.startswith(name)
        for word in words:
            assert word in said
        return said

    return read


# --- what it becomes ------------------------------------------------------------------------------


def test_everything_at_once(parsed: Parse) -> None:
    asked = parsed(
        """
        [gate]
        inconclusive = "fail"
        alpha = 0.01
        warm_up = "30s"
        [[gate.metric]]
        name = "ttft_p95"
        limit = "10%"
        floor = "20ms"
        route = "/chat"
        [[gate.metric]]
        name = "hit_share"
        limit = "5 points"
        [gate.slo]
        ttft = "800ms"
        attainment = "99%"
        [gate.budgets]
        chat = "ttft_p95 < 800ms at input <= 8,000 on route /chat"
        """
    )
    policy = asked.policy
    assert asked.warm_up == 30.0
    assert (policy.inconclusive, policy.alpha, policy.source) == ("fail", 0.01, "ttftdoctor.toml")
    assert policy.rules == (
        Rule("ttft_p95", Scope(route="/chat"), limit_share=0.1, limit=0.02),
        Rule("hit_share", Scope(), limit=0.05),
        Rule("goodput", slo_s=0.8),
        Rule("attainment", slo_s=0.8),
    )
    assert policy.budgets == (
        Budget("chat: ttft_p95 < 800ms at input <= 8,000 on route /chat", "ttft_p95", below=0.8,
               max_input_tokens=8000, scope=Scope(route="/chat")),
        Budget("slo: attainment > 99% of ttft <= 800ms", "attainment", above=0.99, slo_s=0.8),
    )  # fmt: skip


def test_the_example_that_is_shipped_is_a_policy() -> None:
    asked = read_policy(ROOT / "examples" / "ttftdoctor.toml")
    names = [rule.metric for rule in asked.policy.rules]
    assert names[:2] == ["ttft_p95", "hit_share"]
    assert set(DEFAULT_METRICS) <= set(names)
    assert names.count("hit_share") == 1
    assert names.count("ttft_p95") == 2  # on one route, and everywhere
    assert len(asked.policy.budgets) == 2


def test_an_empty_gate_is_the_default_policy(parsed: Parse) -> None:
    asked = parsed("[gate]\n")
    assert asked.policy.rules == default_policy().rules
    assert asked.policy.inconclusive == "pass"
    assert asked.warm_up is True


def test_naming_a_metric_asks_for_it_alone_unless_the_defaults_are_wanted(parsed: Parse) -> None:
    one = '[[gate.metric]]\nname = "ttft_p50"\n'
    assert parsed(one).policy.rules == (Rule("ttft_p50"),)
    both = parsed("[gate]\ndefaults = true\n" + one).policy.rules
    assert [r.metric for r in both] == [
        "ttft_p50", *(m for m in DEFAULT_METRICS if m != "ttft_p50"),
    ]  # fmt: skip
    none = parsed('[gate]\ndefaults = false\n[gate.budgets]\na = "queue < 5ms"\n').policy
    assert none.rules == ()
    assert none.budgets[0].below == 0.005


def test_budgets_stand_beside_the_default_metrics(parsed: Parse) -> None:
    assert parsed('[gate.budgets]\na = "queue < 5ms"\n').policy.rules == default_policy().rules


@pytest.mark.parametrize(
    ("metric", "limit", "share", "amount"),
    [
        ("ttft_p95", "10%", 0.1, 0.025), ("ttft_p95", "2.5 %", 0.025, 0.025),
        ("ttft_p95", "20ms", 0.0, 0.02), ("ttft_p95", "1.5 s", 0.0, 1.5),
        ("hit_share", "5 points", None, 0.05), ("hit_share", "1point", None, 0.01),
        ("decode_per_token", "2ms", 0.0, 2.0), ("decode_per_token", "500us", 0.0, 0.5),
        ("prefill_slope", "5ms", 0.0, 5.0), ("error_rate", "0.5 points", None, 0.005),
    ],
)  # fmt: skip
def test_limits(
    parsed: Parse, metric: str, limit: str, share: float | None, amount: float | None
) -> None:
    (rule,) = parsed(f'[[gate.metric]]\nname = "{metric}"\nlimit = "{limit}"\n').policy.rules
    assert rule.limit_share == (None if share is None else pytest.approx(share))
    # An amount stands alone, a share goes with the amount that is built in.
    assert rule.limit == (None if amount is None else pytest.approx(amount))


def test_a_floor_goes_with_a_share(parsed: Parse) -> None:
    head = '[[gate.metric]]\nname = "ttft_p95"\n'
    assert parsed(head + 'floor = "5ms"\n').policy.rules[0] == Rule(
        "ttft_p95", limit_share=METRICS["ttft_p95"].limit_share, limit=0.005
    )
    assert parsed(head + 'floor = "0ms"\nlimit = "3%"\n').policy.rules[0] == Rule(
        "ttft_p95", limit_share=0.03, limit=0.0
    )
    assert parsed(head).policy.rules[0] == Rule("ttft_p95")


@pytest.mark.parametrize(
    ("text", "below", "above", "most", "scope"),
    [
        ("ttft_p95 < 800ms", 0.8, None, None, Scope()),
        ("ttft_p95<=1.5s at input<=4_000", 1.5, None, 4000, Scope()),
        ("hit_share > 80%", None, 0.8, None, Scope()),
        ("decode_per_token < 40ms on model m", 40.0, None, None, Scope(model="m")),
        ('ttft_mean < 1s on model "a b", route /x', 1.0, None, None, Scope("a b", "/x")),
        ("prefill_slope < 90 ms on route /x and model m", 90.0, None, None, Scope("m", "/x")),
        ("error_rate < 1%", 0.01, None, None, Scope()),
    ],
)
def test_budgets(
    parsed: Parse,
    text: str,
    below: float | None,
    above: float | None,
    most: int | None,
    scope: Scope,
) -> None:
    (budget,) = parsed(f"[gate.budgets]\nb = '{text}'\n").policy.budgets
    assert budget.text == f"b: {text}"
    assert budget.below == (None if below is None else pytest.approx(below))
    assert budget.above == (None if above is None else pytest.approx(above))
    assert (budget.max_input_tokens, budget.scope) == (most, scope)


def test_a_target_on_the_command_line_goes_first(parsed: Parse) -> None:
    text = '[gate.slo]\nttft = "800ms"\n'
    (mine,) = {r.slo_s for r in parsed(text, slo_ttft_s=0.5).policy.rules if r.metric in OF_SLO}
    assert mine == 0.5
    without = policy_without_file(0.5).policy
    assert [r.metric for r in without.rules[-2:]] == list(OF_SLO)
    assert policy_without_file().policy == default_policy()


@pytest.mark.parametrize(
    ("value", "warm_up"),
    [('"auto"', True), ("0", False), ('"0s"', False), ('"1.5min"', 90.0), ("0.0", False)],
)
def test_warm_up(parsed: Parse, value: str, warm_up: bool | float) -> None:
    found = parsed(f"[gate]\nwarm_up = {value}\n").warm_up
    assert found == warm_up
    assert isinstance(found, bool) == isinstance(warm_up, bool)


# --- where it is looked for -----------------------------------------------------------------------


def test_it_is_looked_for_upwards_to_the_root_of_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    (root / ".git").mkdir()
    (tmp_path / "ttftdoctor.toml").write_text("[gate]\n")
    assert find_policy(deep) is None
    (root / "pyproject.toml").write_text("[tool.other]\n")
    assert find_policy(deep) is None
    (root / "pyproject.toml").write_text("[tool.ttftdoctor.gate]\n")
    assert find_policy(deep) == root / "pyproject.toml"
    (root / "ttftdoctor.toml").write_text("[gate]\n")
    assert find_policy(deep) == root / "ttftdoctor.toml"
    (deep / "ttftdoctor.toml").write_text("[gate]\n")
    assert find_policy(deep) == deep / "ttftdoctor.toml"


def test_a_project_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for broken in (b"[tool", b"\xff\xfe", b"tool = 1"):
        (tmp_path / "pyproject.toml").write_bytes(broken)
        assert find_policy(tmp_path) is None


def test_pyproject(parsed: Parse, refused: Refuse) -> None:
    text = '[tool.ttftdoctor.gate]\nalpha = 0.1\n[[tool.ttftdoctor.gate.metric]]\nname = "queue"\n'
    policy = parsed(text, "pyproject.toml").policy
    assert policy.alpha == 0.1
    assert policy.rules == (Rule("queue"),)
    said = refused(text.replace("queue", "qeue"), "'qeue' is no metric", name="pyproject.toml")
    assert "pyproject.toml line 4, tool.ttftdoctor.gate.metric[1].name" in said
    refused("[tool.ttftdoctor]\n", "[tool.ttftdoctor.gate]", name="pyproject.toml")
    refused("[tool]\nttftdoctor = 1\n", "[tool.ttftdoctor.gate]", name="pyproject.toml")


# --- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate\n", ("no TOML", "line 1")),
        ("", ("no [gate] table",)),
        ("gate = 1\n", ("gate: must be a table",)),
        ("[gate]\n[other]\n", ("line 2, other", "no such key", "available: gate")),
        ("[gate]\nalhpa = 1\n", ("line 2, gate.alhpa", "no such key", "alpha, warm_up")),
        ("[gate]\nalpha = 0\n", ("line 2, gate.alpha",)),
        ("[gate]\nalpha = true\n", ("gate.alpha",)),
        ('[gate]\nalpha = "0.05"\n', ("gate.alpha",)),
        ("[gate]\nalpha = nan\n", ("gate.alpha",)),
        ('[gate]\ninconclusive = "maybe"\n', ("gate.inconclusive", "pass, fail")),
        ("[gate]\nwarm_up = 30\n", ("gate.warm_up", "'30s'")),
        ('[gate]\nwarm_up = "soon"\n', ("gate.warm_up",)),
        ("[gate]\nwarm_up = true\n", ("gate.warm_up",)),
        ("[gate]\ndefaults = 1\n", ("gate.defaults", "true or false")),
        ("[gate]\ndefaults = false\n", ("nothing is asked for",)),
        ("[gate.metric]\nname = 'queue'\n", ("gate.metric", "[[gate.metric]]")),
        ("[gate]\nmetric = [1]\n", ("gate.metric[1]", "must be a table")),
        ("[[gate.metric]]\nlimit = '1%'\n", ("needs a name", "ttft_p95")),
        ("[[gate.metric]]\nname = 'ttft_p90'\n",
         ("line 2, gate.metric[1].name", "no metric", "available: ttft_mean")),
        ("[[gate.metric]]\nname = 'queue'\n[[gate.metric]]\nname = 'queue'\n",
         ("line 3, gate.metric[2]", "named twice")),
        ("[[gate.metric]]\nname = 'queue'\nlimits = '1%'\n",
         ("line 3, gate.metric[1].limits", "name, limit, floor, route, model")),
        ("[[gate.metric]]\nname = 'queue'\nlimit = 10\n", ("not the number 10", "'10%' or '20ms'")),
        ("[[gate.metric]]\nname = 'queue'\nlimit = '10'\n", ("not in the unit of queue",)),
        ("[[gate.metric]]\nname = 'queue'\nlimit = '10 tokens'\n", ("not in the unit",)),
        ("[[gate.metric]]\nname = 'queue'\nlimit = '5 points'\n", ("does not move in points",)),
        ("[[gate.metric]]\nname = 'hit_share'\nlimit = '5%'\n", ("moves in points", "'5 points'")),
        ("[[gate.metric]]\nname = 'hit_share'\nlimit = '5% points'\n", ("moves in points",)),
        ("[[gate.metric]]\nname = 'queue'\nlimit = '-5%'\n", ("no limit",)),
        ("[[gate.metric]]\nname = 'queue'\nlimit = '20ms'\nfloor = '5ms'\n",
         ("an amount already",)),
        ("[[gate.metric]]\nname = 'queue'\nlimit = '2%'\nfloor = '5%'\n",
         ("a floor is an amount",)),
        (f"[[gate.metric]]\nname = 'queue'\nlimit = '{'9' * 400}%'\n", ("no limit",)),
        (f"[gate.budgets]\na = 'queue < {'9' * 400}s'\n", ("not in the unit",)),
        (f"[gate.budgets]\na = 'queue < 1s at input <= {'9' * 5000}'\n", ("not understood",)),
        ("[[gate.metric]]\nname = 'queue'\nroute = ''\n", ("gate.metric[1].route",)),
        ("[[gate.metric]]\nname = 'queue'\nroute = 3\n", ("gate.metric[1].route",)),
        ("[[gate.metric]]\nname = 'goodput'\n", ("gate.slo.ttft", "--slo-ttft")),
        ("[gate.slo]\nttft = 800\n", ("gate.slo.ttft", "'800ms'")),
        ("[gate.slo]\nttft = '800'\n", ("gate.slo.ttft",)),
        ("[gate.slo]\nttft = '0s'\n", ("gate.slo.ttft",)),
        ("[gate.slo]\nttft = '1s'\nattainment = '100%'\n", ("gate.slo.attainment",)),
        ("[gate.slo]\nttft = '1s'\nattainment = 0.99\n", ("gate.slo.attainment", "'99%'")),
        ("[gate.slo]\nattainment = '99%'\n", ("gate.slo", "needs ttft")),
        ("[gate.slo]\nttfb = '1s'\n", ("gate.slo.ttfb", "ttft, attainment")),
        ("[gate.budgets]\na = 1\n", ("line 2, gate.budgets.a",)),
        ("[gate.budgets]\na = 'ttft_p95 is low'\n", ("not understood", "ttft_p95 < 800ms")),
        ("[gate.budgets]\na = 'ttft_p95 > 1s'\n", ("bounded from below", "ttft_p95 <")),
        ("[gate.budgets]\na = 'hit_share < 80%'\n", ("bounded from above", "hit_share >")),
        ("[gate.budgets]\na = 'hit_share > 0.8'\n", ("not in the unit",)),
        ("[gate.budgets]\na = 'ttft < 1s'\n", ("no metric",)),
        ("[gate.budgets]\na = 'ttft_p95 < 1 parsec'\n", ("not in the unit",)),
        ("[gate.budgets]\na = 'ttft_p95 < 1..2s'\n", ("not in the unit",)),
        ("[gate.budgets]\na = 'ttft_p95 < 1s at input <= 0'\n", ("so few tokens",)),
        ("[gate.budgets]\na = 'ttft_p95 < 1s at input <= ,'\n", ("so few tokens",)),
        ("[gate.budgets]\na = 'ttft_p95 < 1s on tenant x'\n", ("not understood", "on route")),
        ("[gate.budgets]\na = 'ttft_p95 < 1s on route x route y'\n", ("not understood",)),
        ("[gate.budgets]\na = 'attainment > 99%'\n", ("counts against a target",)),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_its_place(
    refused: Refuse, text: str, words: tuple[str, ...]
) -> None:
    refused(text, *words)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the policy"):
        read_policy(tmp_path / "none.toml")
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        read_policy(path)
    path.write_text("a = " + "[" * 5000, encoding="utf-8")
    with pytest.raises(UsageError, match="no TOML"):
        read_policy(path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8)
        | st.sampled_from(["10%", "5 points", "20ms", "ttft_p95", "ttft_p95 < 1s"]),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["gate", "metric", "name", "limit", "floor", "slo", "ttft", "budgets", "alpha",
                 "warm_up", "defaults", "x", "attainment", "route"]
            ),
            inner, max_size=4,
        ),
        max_leaves=12,
    )
)  # fmt: skip
def test_anything_is_a_policy_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(f"gate = {toml(value)}\n", encoding="utf-8")
    try:
        asked = read_policy(path)
    except TTFTDoctorError as error:
        if not isinstance(error, UsageError):
            raise
        return
    assert asked.policy.rules or asked.policy.budgets


def toml(value: object) -> str:
    """A value as TOML on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if value is None:
        return "1979-05-27"
    if isinstance(value, int):
        return str(value)
    plain = "".join(ch if re.match(r"[\w %<.]", ch) and ch.isascii() else "?" for ch in str(value))
    return f'"{plain}"'


def test_every_metric_has_an_example_that_is_taken(parsed: Parse) -> None:
    """The help of a refused limit can be written as it stands."""
    for name, metric in METRICS.items():
        head = '[gate.slo]\nttft = "1s"\n' if metric.needs_slo else ""
        text = head + f'[[gate.metric]]\nname = "{name}"\nlimit = "?"\n'
        with pytest.raises(UsageError) as caught:
            parsed(text)
        examples = re.findall(r"'([^']+)'", (caught.value.help or "").partition(" (a")[0])
        assert examples, name
        for example in examples:
            assert parsed(text.replace('"?"', f'"{example}"')).policy.rules[0].metric == name

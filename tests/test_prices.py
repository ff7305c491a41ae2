"""Waste and gains in money and GPU-seconds, against the price list's own arithmetic."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import genai_prices
import jsonschema
import numpy as np
import plant
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import prices
from ttftdoctor.cli import app
from ttftdoctor.diagnosis import Diagnosis, Gain, Money
from ttftdoctor.errors import UsageError
from ttftdoctor.examine import examine
from ttftdoctor.measure.replay import Outcome
from ttftdoctor.measure.rows import Rows
from ttftdoctor.prices import Pricing, Till, tariff_of, till_of
from ttftdoctor.report import json_report, money, saving_sentence
from ttftdoctor.run import diagnose, read
from ttftdoctor.treatment import Treatment

DAY = datetime(2026, 5, 1, 10, tzinfo=UTC)
#: A price for writing to the cache, one for reading, one that rises with the length, and none.
WRITES, READS, RISES, UNKNOWN = (
    "claude-sonnet-4-20250514",
    "gpt-4o-2024-08-06",
    "gemini-2.5-pro",
    "my-own-llm",
)


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


def chat(model: str | None, *, sessions: int = 12, hit: float = 0.0, **more: Any) -> list[Any]:
    """Sessions of a model whose turns find their history in a cache now and then."""
    rng = np.random.default_rng(5)
    rows = []
    for session in range(sessions):
        history, now = 0, float(rng.uniform(0, 9000))
        for turn in range(1, 8):
            inputs = history + int(rng.integers(600, 1400))
            cached = history if rng.random() < hit else 0
            ttft = 0.1 + 0.1 * (inputs - cached) / 1e3
            one = plant.row(now, inputs, 100, ttft, session_id=f"{model}-{session}", turn=turn,
                            cached_tokens=cached, **more)  # fmt: skip
            if model is not None:
                one["model"] = model
            rows.append(one)
            history, now = inputs + 100, now + 40.0
    return sorted(rows, key=lambda r: r["timestamp"])


def priced(tmp_path: Path, rows: list[Any], pricing: Pricing) -> Diagnosis:
    return diagnose(written(tmp_path / "log.jsonl", rows), pricing=pricing)


def bill_of(d: Diagnosis) -> Money:
    assert d.repeated_prefix.money is not None
    return d.repeated_prefix.money


def gain_of(d: Diagnosis, remedy: str) -> Gain:
    return next(r for r in d.remedies if r.id == remedy)


def listed(model: str, inputs: int, cached: int, write: int, output: int = 0) -> float:
    """The bill of one request by the list itself."""
    usage = genai_prices.Usage(
        input_tokens=inputs, cache_read_tokens=cached, cache_write_tokens=write,
        output_tokens=output,
    )  # fmt: skip
    found = genai_prices.calc_price(usage, model, genai_request_timestamp=DAY)
    return float(found.total_price)


# --- list prices ----------------------------------------------------------------------------------


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([WRITES, READS, RISES]), st.integers(1, 400_000), st.floats(0, 1),
        st.floats(0, 1), st.integers(0, 5000),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(REQUESTS)
def test_every_bill_is_that_of_the_list(requests: list[tuple[str, int, float, float, int]]) -> None:
    """Computed, written and cached tokens, and prices that rise with the length."""
    models = sorted({model for model, *_ in requests})
    inputs = np.array([float(n) for _, n, *_ in requests])
    cached = np.floor(inputs * [part for _, _, part, _, _ in requests])
    wrote = np.floor((inputs - cached) * [part for *_, part, _ in requests])
    outputs = np.array([float(n) for *_, n in requests])
    rows = SimpleNamespace(
        n=len(requests), inputs=inputs, start=np.zeros(len(requests)),
        epoch_us=int(DAY.timestamp() * 1e6),
        scopes={"model": SimpleNamespace(
            codes=np.array([models.index(model) for model, *_ in requests]), names=tuple(models),
        )},
    )  # fmt: skip
    tariff = tariff_of(rows, None)  # type: ignore[arg-type]
    got = prices._bill(tariff, inputs - cached, cached, wrote) + outputs * tariff.output
    want = [
        listed(model, int(inputs[i]), int(cached[i]), int(wrote[i]), int(outputs[i]))
        for i, (model, *_) in enumerate(requests)
    ]
    assert got == pytest.approx(want, rel=1e-9, abs=1e-12)
    assert not tariff.refused
    assert sum(m.input_tokens for m in tariff.models) == inputs.sum()


def test_the_waste_is_what_a_cache_would_have_saved(tmp_path: Path) -> None:
    """The bill as it is less the bill with every repeated token read from a cache."""
    rows = chat(READS, hit=0.5)
    d = priced(tmp_path, rows, Pricing(listed=True))
    bill = bill_of(d)
    table = read(str(tmp_path / "log.jsonl"))
    examined: Rows = examine(table).rows
    want = sum(
        listed(READS, int(n), int(c), 0) - listed(READS, int(n), int(c + again), 0)
        for n, c, again in zip(examined.inputs, examined.context, examined.recomputed, strict=True)
    )
    assert bill.amount == pytest.approx(want)
    assert bill.input_spent == pytest.approx(
        sum(listed(READS, r["prompt_tokens"], r["cached_tokens"], 0) for r in rows)
    )
    assert bill.output_spent == pytest.approx(
        sum(listed(READS, 0, 0, 0, r["completion_tokens"]) for r in rows)
    )
    assert bill.interval is not None
    assert bill.interval[0] <= bill.amount <= bill.interval[1]
    assert bill.price_source == f"genai-prices {genai_prices.__version__}"
    assert bill.price_date == "2026-05-01"
    assert bill.models[0].priced_as == "openai/gpt-4o"


def test_written_tokens_cost_the_price_of_writing(tmp_path: Path) -> None:
    """History written again each turn costs more than history computed again."""
    plain = chat(WRITES)
    wrote = [{**r, "cache_write_tokens": r["prompt_tokens"]} for r in plain]
    amounts = []
    for rows in (plain, wrote):
        bill = bill_of(priced(tmp_path, rows, Pricing(listed=True)))
        amounts.append(bill.amount)
        again = sum(r["prompt_tokens"] for r in rows) * 1e-6
        assert bill.input_spent == pytest.approx(again * (3.0 if rows is plain else 3.75))
    assert amounts[1] == pytest.approx((amounts[0] or 0) * (3.75 - 0.3) / (3.0 - 0.3))


def test_unknown_models_are_refused_by_name_and_the_rest_is_priced(tmp_path: Path) -> None:
    known, unknown = chat(READS), chat(UNKNOWN)
    d = priced(tmp_path, sorted(known + unknown, key=lambda r: r["timestamp"]), Pricing(True))
    alone = bill_of(priced(tmp_path, known, Pricing(True)))
    bill = bill_of(d)
    assert bill.refused == (UNKNOWN,)
    assert bill.tokens_priced_share == pytest.approx(0.5)
    assert bill.amount == pytest.approx(alone.amount, rel=1e-6)
    (warning,) = [w for w in d.warnings if "no price" in w]
    assert UNKNOWN in warning
    assert "50 %" in warning
    # The replay speaks of all tokens; only those with a price are worth money.
    assert gain_of(d, "prefix_cache").money_saved == pytest.approx(alone.amount, rel=0.02)


@pytest.mark.parametrize("model", [UNKNOWN, None])
def test_where_no_model_has_a_price_nothing_is_guessed(tmp_path: Path, model: str | None) -> None:
    d = priced(tmp_path, chat(model), Pricing(True))
    bill = bill_of(d)
    assert bill.amount is bill.input_spent is bill.output_spent is bill.per_day is None
    assert bill.tokens_priced_share == 0
    assert bill.refused == (model or "requests that name no model",)
    assert all(r.money_saved is None for r in d.remedies)
    text = " ".join(ttftdoctor.to_text(d).split())
    assert "What that costs is unknown: no model has a price" in text
    assert "--provider says" in text


def test_a_provider_may_be_named(tmp_path: Path) -> None:
    d = priced(tmp_path, chat("gpt-4o"), Pricing(True, provider="azure"))
    assert bill_of(d).models[0].priced_as == "azure/gpt-4o"
    with pytest.raises(UsageError, match="nobody"):
        priced(tmp_path, chat("gpt-4o"), Pricing(True, provider="nobody"))


def test_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert bill_of(priced(tmp_path, chat(READS), Pricing(True))).amount


def test_the_price_of_the_day_is_taken() -> None:
    """A dated change, and a price by the time of day: each request by its own moment."""
    old, new = SimpleNamespace(input_mtok=4), SimpleNamespace(input_mtok=2)
    change = date(2026, 5, 2)
    model = SimpleNamespace(
        prices=[
            SimpleNamespace(constraint=None, prices=old),
            SimpleNamespace(constraint=SimpleNamespace(start_date=change), prices=new),
        ],
        get_prices=lambda when: new if when.date() >= change else old,
    )
    starts = np.array([0.0, 50_400.0 - 1, 50_400.0, 90_000.0])  # from 10:00; midnight is between
    rows = SimpleNamespace(epoch_us=int(DAY.timestamp() * 1e6), start=starts)
    moments = prices._moments(rows)  # type: ignore[arg-type]
    found = {
        int(price.input_mtok): [int(i) for i in at]
        for at, price in prices._in_force(model, moments, np.arange(4))
    }
    assert found == {4: [0, 1], 2: [2, 3]}
    assert prices._since(model, new) == "2026-05-02"
    assert prices._since(model, old) is None


# --- GPUs -----------------------------------------------------------------------------------------


def test_gpu_seconds_and_their_money(tmp_path: Path) -> None:
    d = priced(tmp_path, chat(UNKNOWN), Pricing(gpu_hour=3.6, gpus=8, currency="EUR"))
    p, bill = d.repeated_prefix, bill_of(d)
    assert p.gpu_seconds_wasted == pytest.approx(8 * (p.prefill_seconds_wasted or 0))
    assert bill.amount == pytest.approx((p.gpu_seconds_wasted or 0) * 3.6 / 3600)
    assert (bill.currency, bill.basis, bill.gpus_per_replica) == ("EUR", "gpu_hours", 8)
    assert not any("1 GPU" in text for text in bill.assumed)
    cache = gain_of(d, "prefix_cache")
    assert cache.gpu_seconds_saved == pytest.approx(p.gpu_seconds_wasted, rel=0.05)
    assert cache.money_saved == pytest.approx((cache.gpu_seconds_saved or 0) * 3.6 / 3600)
    assert gain_of(d, "chunked_prefill").gpu_seconds_saved == 0


def test_one_gpu_is_assumed_and_says_so(tmp_path: Path) -> None:
    d = priced(tmp_path, chat(UNKNOWN), Pricing(gpu_hour=2.0))
    assert d.repeated_prefix.gpu_seconds_wasted == d.repeated_prefix.prefill_seconds_wasted
    assert any("1 GPU a replica" in text for text in bill_of(d).assumed)
    only = priced(tmp_path, chat(UNKNOWN), Pricing(gpus=2.0))
    assert only.repeated_prefix.gpu_seconds_wasted is not None
    assert only.repeated_prefix.money is None


def till(tmp_path: Path, rows: list[Any], pricing: Pricing) -> Till:
    return till_of(examine(read(written(tmp_path / "log.jsonl", rows))).rows, pricing)


def outcome(seconds: float, tokens: float) -> Outcome:
    return Outcome(1.0, 1.0, 1.0, 0.1, (0.0, 0.2), prefill_s_saved=seconds, tokens_saved=tokens)


def test_more_machines_cost_for_as_long_as_the_log_lasts(tmp_path: Path) -> None:
    rows = chat(UNKNOWN)
    for at, row in enumerate(rows):
        row["replica"] = f"pod-{at % 3}"
    one = till(tmp_path, rows, Pricing(gpu_hour=3.6, gpus=2))
    double = one.saved(Treatment(servers=2), outcome(0.0, 0.0))
    span = rows[-1]["timestamp"] - rows[0]["timestamp"]
    assert double.gpu_seconds == pytest.approx(-3 * 2 * span, rel=1e-3)
    assert double.money == pytest.approx(-3 * 2 * span * 3.6 / 3600, rel=1e-3)
    both = one.saved(Treatment(reuse=True, servers=2), outcome(100.0, 1.0))
    assert both.gpu_seconds == pytest.approx((double.gpu_seconds or 0) + 200)
    unnamed = till(tmp_path, chat(UNKNOWN), Pricing(gpu_hour=3.6))
    assert unnamed.saved(Treatment(servers=2), outcome(0.0, 0.0)).gpu_seconds is None


def test_what_computes_more_costs(tmp_path: Path) -> None:
    """A compaction whose own inference outweighs what it saves."""
    hired = till(tmp_path, chat(UNKNOWN), Pricing(gpu_hour=3.6))
    costs = hired.saved(Treatment(compact_to=3000), outcome(-50.0, -1000.0))
    assert costs.gpu_seconds == -50
    assert costs.money == pytest.approx(-50 * 3.6 / 3600)
    billed = till(tmp_path, chat(READS), Pricing(True))
    assert (billed.saved(Treatment(compact_to=3000), outcome(-50.0, -1000.0)).money or 0) < 0


def test_compaction_saves_tokens_at_the_price_they_had(tmp_path: Path) -> None:
    """Computed ones at the full price, those from the cache at the price of reading them."""
    for hit in (0.0, 1.0):
        rows = chat(READS, hit=hit)
        one = till(tmp_path, rows, Pricing(True))
        fewer = cheaper = 0.0
        for r in rows:
            kept = 3000 / r["prompt_tokens"] if r["turn"] > 1 and r["prompt_tokens"] > 3000 else 1.0
            inputs, cached = r["prompt_tokens"], r["cached_tokens"]
            fewer += (inputs - cached) * (1 - kept)
            cheaper += (inputs - cached) * (1 - kept) * 2.5e-6 + cached * (1 - kept) * 1.25e-6
        saved = one.saved(Treatment(compact_to=3000), outcome(1.0, fewer))
        assert saved.money == pytest.approx(cheaper)


def test_a_remedy_of_which_nobody_knows_the_work_has_no_figure(tmp_path: Path) -> None:
    hired = till(tmp_path, chat(UNKNOWN), Pricing(gpu_hour=2.0))
    for treatment in (
        Treatment(warm=True),
        Treatment(rolled_back=True),
        Treatment(no_retries=True),
    ):
        assert hired.saved(treatment, outcome(0.0, 0.0)).gpu_seconds is None
        billed = till(tmp_path, chat(READS), Pricing(True))
        assert billed.saved(treatment, outcome(0.0, 0.0)).money is None
    assert hired.saved(Treatment(fair=True), outcome(0.0, 0.0)).gpu_seconds == 0.0
    assert billed.saved(Treatment(fair=True, decode_apart=True), outcome(0.0, 0.0)).money == 0.0


def test_a_day_is_not_told_from_minutes(tmp_path: Path) -> None:
    whole = bill_of(priced(tmp_path, chat(READS), Pricing(True)))
    rows = chat(READS)
    span = rows[-1]["timestamp"] - rows[0]["timestamp"]
    assert whole.per_day == pytest.approx((whole.amount or 0) * 86400 / span)
    for row in rows:
        row["timestamp"] = plant.EPOCH_S + (row["timestamp"] - plant.EPOCH_S) / 10
    short = priced(tmp_path, rows, Pricing(True))
    assert bill_of(short).per_day is None
    assert all(r.money_saved_per_day is None for r in short.remedies)


# --- asking, and not asking -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"listed": True, "gpu_hour": 2.0},
        {"listed": True, "gpus": 2.0},
        {"provider": "openai"},
        {"gpu_hour": 0.0},
        {"gpu_hour": -1.0},
        {"gpu_hour": float("nan")},
        {"gpus": float("inf")},
        {"listed": True, "currency": "EUR"},
        {"currency": "EUR"},
        {"gpu_hour": 1.0, "currency": "\x1b[31m"},
        {"gpu_hour": 1.0, "currency": ""},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Pricing(**wrong)


def test_who_does_not_ask_gets_no_money(tmp_path: Path) -> None:
    d = diagnose(written(tmp_path / "log.jsonl", chat(READS)))
    assert d.repeated_prefix.money is d.repeated_prefix.gpu_seconds_wasted is None
    for gain in d.remedies:
        assert gain.gpu_seconds_saved is gain.money_saved is gain.money_saved_per_day is None
    text = ttftdoctor.to_text(d)
    assert "GPU-seconds" not in text
    assert "USD" not in text


@pytest.mark.parametrize("pricing", [Pricing(True), Pricing(gpu_hour=2.5, gpus=4)])
def test_the_document_and_the_reports_hold_the_money(tmp_path: Path, pricing: Pricing) -> None:
    d = priced(tmp_path, chat(READS), pricing)
    said = json.loads(ttftdoctor.to_json(d))
    jsonschema.validate(said, json_report.schema(), cls=jsonschema.Draft202012Validator)
    assert said["repeated_prefix"]["money"]["amount"] == bill_of(d).amount
    saved = saving_sentence(d, gain_of(d, "prefix_cache"))
    assert saved.startswith("saves ")
    for text in (ttftdoctor.to_text(d), ttftdoctor.to_markdown(d), ttftdoctor.to_html(d)):
        flat = " ".join(text.replace("\\", "").split())
        assert f"It costs {money(bill_of(d).amount or 0)} USD" in flat
        assert bill_of(d).price_source in flat.replace("&#x27;", "'")
        assert saved in flat
    assert max(map(len, ttftdoctor.to_text(d).splitlines())) <= 80


def test_the_command_line_asks(tmp_path: Path) -> None:
    log = written(tmp_path / "log.jsonl", chat(READS))

    def run(*options: str) -> Any:
        return CliRunner().invoke(app, ["diagnose", log, "--json", "-", *options])

    listed_ = json.loads(run("--prices", "--provider", "openai").stdout)
    assert listed_["repeated_prefix"]["money"]["basis"] == "tokens"
    hired = json.loads(run("--gpu-hour-price", "2.5", "--gpus", "4", "--currency", "EUR").stdout)
    assert hired["repeated_prefix"]["money"]["currency"] == "EUR"
    wrong = run("--prices", "--gpu-hour-price", "2.5")
    assert wrong.exit_code == 2
    assert "two ways" in wrong.stderr


def test_amounts_as_people_read_them() -> None:
    assert money(1234.5) == "1,234.50"
    assert money(0.04123) == "0.0412"
    assert money(0.0) == "0.00"
    assert money(3e-7) == "less than 0.0001"
    assert "e" not in money(0.00012)


def test_the_list_is_loaded_for_those_who_ask_for_it() -> None:
    log = Path(__file__).parents[1] / "sample_logs" / "flat.jsonl"
    code = (
        "import sys, ttftdoctor\n"
        f"ttftdoctor.diagnose({str(log)!r}, pricing=ttftdoctor.Pricing(gpu_hour=1.0))\n"
        "print('genai_prices' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "False"

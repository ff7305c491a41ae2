"""The model beside the engine: pages of metrics as engines write them, sums that must add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from ttftdoctor.errors import InputError
from ttftdoctor.prefixes import metrics, reconcile
from ttftdoctor.prefixes.metrics import Counters, counters, counters_between, together
from ttftdoctor.prefixes.reconcile import Index, beside_metrics, beside_reported
from ttftdoctor.prefixes.records import Reconciled
from ttftdoctor.stats import Array

Write = Callable[[CollectorRegistry], bytes]

PAGE = (Path(__file__).parent / "data" / "vllm.metrics.txt").read_text(encoding="utf-8")


def page(*lines: str) -> str:
    return "\n".join([*lines, ""])


# --- one page -------------------------------------------------------------------------------------


def test_a_page_of_vllm_sums_its_engines() -> None:
    """``_created`` is a time, not a count."""
    found = counters(PAGE)
    assert (found.engine, found.unit) == ("vLLM", "tokens")
    assert (found.hit_tokens, found.queried_tokens, found.prompt_tokens) == (38e3, 100e3, 100e3)
    assert found.share == 0.38
    assert found.repeats == 1.0
    assert found.names == ("vllm:prefix_cache_hits", "vllm:prefix_cache_queries")
    assert found.notes == ()


@pytest.mark.parametrize(
    ("lines", "engine", "unit", "hits", "queried", "prompt"),
    [
        pytest.param(  # counted once per prompt, so it goes before the lookups
            ("vllm:prompt_tokens_cached_total 900", "vllm:prompt_tokens_total 2000",
             "vllm:prefix_cache_hits_total 5000", "vllm:prefix_cache_queries_total 9000"),
            "vLLM", "tokens", 900, 2000, 2000, id="vllm-prompts",
        ),
        pytest.param(  # what the engine lacks and its connector has
            ("vllm:prefix_cache_hits_total 100", "vllm:prefix_cache_queries_total 1000",
             "vllm:external_prefix_cache_hits_total 250",
             "vllm:external_prefix_cache_queries_total 900"),
            "vLLM", "tokens", 350, 1000, None, id="vllm-connector",
        ),
        pytest.param(
            ("# HELP vllm:gpu_prefix_cache_queries_total GPU prefix cache queries, in terms of "
             "number of queried blocks.",
             "# TYPE vllm:gpu_prefix_cache_queries_total counter",
             "vllm:gpu_prefix_cache_queries_total 64",
             "# TYPE vllm:gpu_prefix_cache_hits_total counter",
             "vllm:gpu_prefix_cache_hits_total 16", "vllm:prompt_tokens_total 100"),
            "vLLM", "blocks", 16, 64, 100, id="vllm-blocks-by-help",
        ),
        pytest.param(
            ("# HELP vllm:gpu_prefix_cache_queries_total GPU prefix cache queries, in terms of "
             "number of queriedtokens. DEPRECATED",
             "# TYPE vllm:gpu_prefix_cache_queries_total counter",
             "vllm:gpu_prefix_cache_queries_total 64", "vllm:gpu_prefix_cache_hits_total 16"),
            "vLLM", "tokens", 16, 64, None, id="vllm-tokens-by-help",
        ),
        pytest.param(
            ("vllm:gpu_prefix_cache_queries_total 64", "vllm:gpu_prefix_cache_hits_total 16",
             "vllm:prompt_tokens_total 1030"),
            "vLLM", "blocks", 16, 64, 1030, id="vllm-blocks-by-number",
        ),
        pytest.param(
            ('sglang:prompt_tokens_total{model_name="m"} 500',
             'sglang:cached_tokens_total{model_name="m",cache_source="device"} 80',
             'sglang:cached_tokens_total{model_name="m",cache_source="storage_file"} 40',
             'sglang:cached_tokens_total{model_name="m",cache_source="total"} 5'),
            "SGLang", "tokens", 125, 500, 500, id="sglang-sources",
        ),
        pytest.param(  # a counter with labels has no series before its first count
            ("# HELP sglang:cached_tokens_total Number of cached prompt tokens.",
             "# TYPE sglang:cached_tokens_total counter",
             'sglang:prompt_tokens_total{model_name="m"} 500'),
            "SGLang", "tokens", 0, 500, 500, id="sglang-nothing-cached",
        ),
        pytest.param(  # an exporter that cannot write colons
            ("sglang_prompt_tokens_total 500", "sglang_cached_tokens_total 80"),
            "SGLang", "tokens", 80, 500, 500, id="sglang-underscore",
        ),
        pytest.param(
            ("trtllm_prompt_tokens_total 1000", "trtllm_prompt_cached_tokens_total 200",
             "trtllm_kv_cache_reused_blocks_total 3", "trtllm_kv_cache_missed_blocks_total 9"),
            "TensorRT-LLM", "tokens", 200, 1000, 1000, id="trtllm-tokens",
        ),
        pytest.param(
            ("trtllm_kv_cache_reused_blocks_total 3", "trtllm_kv_cache_missed_blocks_total 9"),
            "TensorRT-LLM", "blocks", 3, 12, None, id="trtllm-blocks",
        ),
        pytest.param(  # the prompt tokens of llama.cpp are those it computed
            ("llamacpp:prompt_tokens_total 300", "llamacpp:prompt_tokens_cached_total 700"),
            "llama.cpp", "tokens", 700, 1000, 1000, id="llamacpp",
        ),
        pytest.param(
            ("lmcache:num_lookup_tokens_total 400", "lmcache:num_lookup_hits_total 100"),
            "LMCache", "tokens", 100, 400, None, id="lmcache",
        ),
    ],
)  # fmt: skip
def test_each_engine_counts_its_own_way(
    lines: tuple[str, ...], engine: str, unit: str, hits: float, queried: float, prompt: float
) -> None:
    found = counters(page(*lines))
    assert (found.engine, found.unit) == (engine, unit)
    assert (found.hits, found.queried, found.prompt_tokens) == (hits, queried, prompt)
    assert found.share == hits / queried
    assert found.hit_tokens == (hits if unit == "tokens" else None)
    assert found.queried_tokens == (queried if unit == "tokens" else None)


def dynamo() -> CollectorRegistry:
    registry = CollectorRegistry()
    asked = Histogram(
        "dynamo_frontend_input_sequence_tokens", "tokens", ["model"], registry=registry
    )
    cached = Histogram("dynamo_frontend_cached_tokens", "tokens", ["model"], registry=registry)
    for size, found in ((100, 0), (300, 128), (400, 256)):
        asked.labels("m").observe(size, exemplar={"trace": "a # b"})
        cached.labels("m").observe(found)
    return registry


@pytest.mark.parametrize("write", [generate_latest, generate_openmetrics])
def test_sums_of_histograms_count_too(write: Write) -> None:
    found = counters(write(dynamo()).decode())
    assert (found.engine, found.hit_tokens, found.queried_tokens) == ("Dynamo", 384, 800)
    assert "router" in found.notes[0]


@pytest.mark.parametrize("write", [generate_latest, generate_openmetrics])
def test_both_formats_say_the_same(write: Write) -> None:
    """As the client library writes them: ``_created``, exemplars and labels of any text."""
    registry = CollectorRegistry()
    hits = Counter("vllm:prefix_cache_hits", "tokens", ["model_name"], registry=registry)
    asked = Counter("vllm:prefix_cache_queries", "tokens", ["model_name"], registry=registry)
    for number, model in enumerate(('a"}\n# EOF', "b\\", "c 4 # {x}", "\u2028é\x1b[31m"), start=1):
        hits.labels(model).inc(number, exemplar={"trace": "x"})
        asked.labels(model).inc(10 * number)
    text = write(registry).decode()
    found = counters(text)
    assert (found.hits, found.queried) == (10, 100)
    assert counters(text.replace("\n", "\r\n")) == found
    assert counters("\ufeff" + text) == found


def test_a_page_of_two_engines_says_which_was_taken() -> None:
    found = counters(
        page(
            "dynamo_frontend_cached_tokens_sum 5", "dynamo_frontend_input_sequence_tokens_sum 10",
            "vllm:prefix_cache_hits_total 4", "vllm:prefix_cache_queries_total 10",
            "lmcache:num_lookup_tokens_total 6", "lmcache:num_lookup_hits_total 1",
        )
    )  # fmt: skip
    assert (found.engine, found.share) == ("vLLM", 0.4)
    assert found.notes == ("the page also has counters of Dynamo and LMCache, not used here",)


def test_an_idle_counter_does_not_hide_one_that_counts() -> None:
    idle = ("vllm:prefix_cache_hits_total 0", "vllm:prefix_cache_queries_total 0")
    assert counters(page(*idle)).share is None
    busy = ("lmcache:num_lookup_tokens_total 6", "lmcache:num_lookup_hits_total 3")
    assert counters(page(*idle, *busy)).share == 0.5


@pytest.mark.parametrize(
    ("lines", "engine", "rate"),
    [
        (('vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.25',), "vLLM", 0.25),
        (("sglang:cache_hit_rate 87.5",), "SGLang", 0.875),
        (('sglang:cache_hit_rate{r="0"} 0.2', 'sglang:cache_hit_rate{r="1"} 0.4'), "SGLang", 0.3),
        (("trtllm_kv_cache_hit_rate 0.5", "trtllm_prompt_tokens_total 9"), "TensorRT-LLM", 0.5),
        (('sglang:cache_hit_rate{r="0"} NaN', 'sglang:cache_hit_rate{r="1"} 0.4'), "SGLang", 0.4),
    ],
)
def test_a_rate_stands_in_for_counters(lines: tuple[str, ...], engine: str, rate: float) -> None:
    found = counters(page(*lines))
    assert found.engine == engine
    assert found.share == pytest.approx(rate)
    assert found.hit_tokens is None
    assert "rate" in found.notes[0]
    both = counters(page("vllm:prefix_cache_hits_total 1", "vllm:prefix_cache_queries_total 9"))
    assert both.rate is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no page of metrics"),
        ("<html><body>Login</body></html>\n", "no page of metrics"),
        ('{"error": {"message": "not found"}}\n', "no page of metrics"),
        ("up 1\n", "no counters of a prefix cache"),
        ("tgi_request_count 4\n", "page of TGI"),
        ("lmdeploy:prompt_tokens_total 4\n", "page of LMDeploy"),
        ("llamacpp:prompt_tokens_total 4\n", "page of llama.cpp"),
        ("vllm:prompt_tokens_total 4\n", "page of vLLM"),
        ("vllm:gpu_prefix_cache_hit_rate -1\n", "page of vLLM"),  # the cache is off
        (PAGE[: PAGE.index("30000.0") + 3], "middle of a line"),
        (PAGE + PAGE, "stands twice"),
        (PAGE.replace("30000.0", "NaN"), "no count"),
        (PAGE.replace("30000.0", "+Inf"), "no count"),
        (PAGE.replace("30000.0", "-3"), "no count"),
        (PAGE.replace("30000.0", "300000.0"), "more was found"),
        (PAGE.replace("30000.0", "thirty"), "cannot be read"),
        (PAGE.replace("30000.0", ""), "cannot be read"),
        (PAGE.replace('engine="0"', "engine=0"), "cannot be read"),
        (PAGE.replace('engine="0"', 'engine="\x1b[31m'), "cannot be read"),
        (PAGE.replace('engine="0"', "engine=\x1b[31m"), "cannot be read"),
        (PAGE.replace('engine="0"', f'engine="{"x" * 9000}"'), "characters"),
        (PAGE + "# EOF\n" + PAGE + "# EOF\n", "cannot be read"),
        ("sglang:cache_hit_rate 250\n", "no rate"),
    ],
)
def test_what_is_no_page_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        counters(text)
    assert says in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_page_of_nothing_says_how_to_get_one() -> None:
    with pytest.raises(InputError, match="curl http://ENGINE/metrics"):
        counters("up 1\n")


def test_a_huge_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_PAGE_CHARS", 100)
    with pytest.raises(InputError, match="too many"):
        counters(PAGE)


@given(
    st.lists(
        st.sampled_from(
            ["vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "{", "}", '"', "\\",
             "a", "=", ",", " ", "1", "#", " # ", "# TYPE ", "# HELP ", "# EOF", "counter", "\n",
             "\r", "\t", "NaN", "\x00", "\u2028", "_sum", "histogram",
             "\n# TYPE vllm:prompt_tokens"]
        ),
        max_size=60,
    )
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_no_text_breaks_the_reader(parts: list[str]) -> None:
    """It is read, or refused with a sentence; nothing else is raised."""
    try:
        found = counters("".join(parts) + "\n")
    except InputError:
        return
    assert found.share is None or 0.0 <= found.share <= 1.0


# --- two pages, several pages ---------------------------------------------------------------------


def vllm(hits: Mapping[str, float], asked: Mapping[str, float]) -> Counters:
    return counters(
        page(
            *(f'vllm:prefix_cache_hits_total{{engine="{e}"}} {v}' for e, v in hits.items()),
            *(f'vllm:prefix_cache_queries_total{{engine="{e}"}} {v}' for e, v in asked.items()),
        )
    )


COUNTS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 99), st.integers(0, 99)))


@given(COUNTS, COUNTS)
@settings(deadline=None)
def test_the_difference_of_two_pages(
    first: dict[str, tuple[int, int]], more: dict[str, tuple[int, int]]
) -> None:
    """What was counted in between, whatever replicas came in between."""
    if not more:
        return
    hits = {e: h for e, (h, _) in first.items()}
    asked = {e: h + m for e, (h, m) in first.items()}
    later = {**dict.fromkeys(first, (0, 0)), **more}
    new_hits = {e: hits.get(e, 0) + h for e, (h, _) in later.items()}
    new_asked = {e: asked.get(e, 0) + h + m for e, (h, m) in later.items()}
    after = vllm(new_hits, new_asked)
    if not first:
        return
    found = counters_between(vllm(hits, asked), after)
    assert found.hits == sum(h for h, _ in more.values())
    assert found.queried == sum(h + m for h, m in more.values())
    assert found.notes == ()


def test_a_replica_that_restarted_is_counted_from_its_start() -> None:
    """All counters of that replica, also the one that has outgrown its old value since."""
    before = vllm({"0": 10, "1": 50}, {"0": 100, "1": 500})
    after = vllm({"0": 20, "1": 60}, {"0": 300, "1": 90})
    found = counters_between(before, after)
    assert (found.hits, found.queried) == (10 + 60, 200 + 90)
    assert "one replica counted less" in found.notes[0]


def test_a_replica_that_restarted_with_counts_by_source() -> None:
    def sglang(prompt: int, device: int, host: int) -> Counters:
        return counters(
            page(
                f'sglang:prompt_tokens_total{{m="x"}} {prompt}',
                f'sglang:cached_tokens_total{{m="x",cache_source="device"}} {device}',
                f'sglang:cached_tokens_total{{m="x",cache_source="host"}} {host}',
            )
        )

    found = counters_between(sglang(900, 100, 3), sglang(400, 150, 40))
    assert (found.hits, found.queried) == (190, 400)
    assert len(found.notes) == 1


def test_a_replica_that_is_gone_is_said() -> None:
    found = counters_between(vllm({"0": 1, "1": 5}, {"0": 10, "1": 50}), vllm({"0": 4}, {"0": 20}))
    assert (found.hits, found.queried) == (3, 10)
    assert found.notes == ("one replica of the first page is not on the later one",)


def test_nothing_cached_on_the_first_page() -> None:
    """SGLang declares a counter before it has a series."""
    declared = "# TYPE sglang:cached_tokens_total counter"
    before = counters(page(declared, "sglang:prompt_tokens_total 10"))
    after = counters(page("sglang:cached_tokens_total 30", "sglang:prompt_tokens_total 110"))
    assert counters_between(before, after).share == 0.3


def test_pages_that_count_different_things() -> None:
    one = vllm({"0": 1}, {"0": 10})
    other = counters(page("sglang:prompt_tokens_total 500", "sglang:cached_tokens_total 80"))
    for both in (counters_between, lambda a, b: together([a, b])):
        with pytest.raises(InputError, match="do not count the same thing"):
            both(one, other)
    with pytest.raises(InputError, match="no page"):
        together([])


def test_rates_have_neither_a_difference_nor_a_sum() -> None:
    rate = counters(page("sglang:cache_hit_rate 0.5"))
    later = counters_between(rate, replace(rate, rate=0.25))
    assert later.share == 0.25
    assert "no difference" in later.notes[-1]
    with pytest.raises(InputError, match="have no sum"):
        together([rate, rate])
    assert together([rate]) is rate


def test_pages_of_several_replicas_are_summed() -> None:
    """Also where their labels are the same."""
    one, other = vllm({"0": 1}, {"0": 10}), vllm({"0": 4}, {"0": 30})
    both = together([one, other])
    assert (both.hits, both.queried, both.share) == (5, 40, 0.125)
    later = together([vllm({"0": 3}, {"0": 20}), vllm({"0": 1}, {"0": 5})])
    found = counters_between(both, later)
    assert (found.hits, found.queried) == (2 + 1, 10 + 5)


# --- the model beside a page ----------------------------------------------------------------------

MODEL = (("ideal", 60e3), ("expiry", 50e3), ("capacity", 50e3), ("routing", 40e3))


def beside(share: float, prompt: float = 100e3) -> Reconciled:
    found = counters(
        page(f"sglang:prompt_tokens_total {prompt}", f"sglang:cached_tokens_total {share * prompt}")
    )
    return beside_metrics(found, MODEL, 100e3)


@pytest.mark.parametrize(
    ("share", "rung", "says"),
    [
        (0.598, "ideal", "0.2 points less, so it does not lose what the model takes off after exp"),
        (
            0.502,
            "capacity",
            "0.2 points more, so it does not lose what the model takes off after r",
        ),
        (0.400, "routing", "the same, so the limits down to that rung account for it"),
        (0.430, "routing", "3.0 points more, so it loses part of what the model takes off after r"),
        (0.560, "ideal", "4.0 points less, so it loses part of what the model takes off after exp"),
        (0.700, "ideal", "10.0 points more, and more than the model has on any rung"),
        (0.382, "routing", "1.8 points less, and less than any rung leaves"),
    ],
)
def test_the_nearest_rung_is_named(share: float, rung: str, says: str) -> None:
    found = beside(share)
    assert found.model_rung == rung
    assert says in found.says
    assert found.engine_share == pytest.approx(share)
    assert found.difference_points == pytest.approx(100 * (share - found.model_share))
    assert (found.over_tokens, found.under_tokens, found.mean_error_points) == (None, None, None)
    assert "not comparable" not in found.says


def test_the_sentence_word_for_word() -> None:
    found = beside_metrics(counters(PAGE), MODEL, 100e3)
    assert found.source == "vLLM metrics (vllm:prefix_cache_hits, vllm:prefix_cache_queries)"
    assert found.says == (
        "the engine found 38.0 % of the tokens; the model after routing says 40.0 %: 2.0 points "
        "less, and less than any rung leaves: the engine loses more than the limits modelled"
    )


@pytest.mark.parametrize(("prompt", "apart"), [(104e3, False), (96e3, False), (106e3, True)])
def test_a_page_of_another_span_is_said(prompt: float, apart: bool) -> None:
    found = beside(0.4, prompt)
    assert ("not comparable" in found.says) is apart
    assert ("account for it" in found.says) is not apart
    if apart:
        assert "106,000 prompt tokens and the log 100,000 (+6.0 %)" in found.says


def test_prompts_looked_up_again_and_again_are_said() -> None:
    """Figures of a real run: three times as many lookups as prompt tokens."""
    found = beside_metrics(
        counters(
            page(
                "vllm:prefix_cache_queries_total 31983090", "vllm:prefix_cache_hits_total 3252816",
                "vllm:prompt_tokens_total 10215207",
            )
        ),
        [("ideal", 4e6)], 10215207,
    )  # fmt: skip
    assert found.engine_share == pytest.approx(3252816 / 31983090)
    assert "3.1 times as many tokens were looked up as the prompts have" in found.says
    assert "loses more" not in found.says


def test_blocks_and_an_unknown_span_are_said() -> None:
    found = beside_metrics(counters(page("vllm:gpu_prefix_cache_hit_rate 0.4")), MODEL, 100e3)
    assert "40.0 % of the blocks" in found.says
    assert "not quite one of tokens" in found.says
    assert "does not count prompt tokens" in found.says


def test_an_engine_that_did_nothing_cannot_be_compared() -> None:
    idle = counters(page("vllm:prefix_cache_hits_total 0", "vllm:prefix_cache_queries_total 0"))
    with pytest.raises(InputError, match="no prompt tokens yet"):
        beside_metrics(idle, MODEL, 100e3)


def test_the_log_itself_may_be_the_last_rung() -> None:
    model = (*MODEL, ("actual", 20e3))
    same = beside_metrics(
        counters(page("sglang:prompt_tokens_total 100000", "sglang:cached_tokens_total 20100")),
        model, 100e3,
    )  # fmt: skip
    assert "the log itself says 20.0 %: 0.1 points more, so the page and the log agree" in same.says
    more = beside_metrics(counters(PAGE), model, 100e3)
    assert "38.0 % of the tokens; the model after routing says 40.0 %" in more.says
    assert "and more than the log reports" in more.says


@given(
    st.lists(st.floats(0, 1e5), min_size=1, max_size=6),
    st.floats(0, 1),
)
def test_no_rung_is_nearer(hits: list[float], share: float) -> None:
    """Whatever the rungs, also where one gives back what another took."""
    model = [(f"r{i}", h) for i, h in enumerate(hits)]
    found = beside_metrics(replace(counters(PAGE), rate=share), model, 1e5)
    assert abs(found.engine_share - found.model_share) <= min(
        abs(share - h / 1e5) for h in hits
    ) + 1e-9  # fmt: skip


# --- the model beside the log ---------------------------------------------------------------------

Keys = Mapping[str, tuple[Index, Sequence[str]]]


def codes(values: Sequence[int]) -> Index:
    return np.asarray(values, dtype=np.int64)


REQUEST = st.tuples(
    st.integers(0, 1000), st.one_of(st.none(), st.integers(0, 1000)), st.integers(0, 1000),
    st.integers(-1, 3),
)  # fmt: skip


@given(st.lists(REQUEST, max_size=60))
@settings(deadline=None)
def test_the_sums_add_up(requests: list[tuple[int, int | None, int, int]]) -> None:
    """As counted one request after another."""
    model = np.array([float(m) for m, *_ in requests])
    actual = np.array([math.nan if a is None else float(a) for _, a, *_ in requests])
    inputs = np.array([float(i) for *_, i, _ in requests])
    keys: Keys = {"replica": (codes([r for *_, r in requests]), ["a", "b", "c", "d"])}
    found = beside_reported(model, actual, inputs, keys, "routing")
    kept = [(m, a, i, r) for m, a, i, r in requests if a is not None and i > 0]
    if not kept:
        assert found is None
        return
    assert found is not None
    over = sum(max(a - m, 0) for m, a, _, _ in kept)
    under = sum(max(m - a, 0) for m, a, _, _ in kept)
    assert (found.over_tokens, found.under_tokens) == (over, under)
    total = sum(i for *_, i, _ in kept)
    assert found.engine_share == pytest.approx(sum(a for _, a, _, _ in kept) / total)
    assert found.model_share == pytest.approx(sum(m for m, *_ in kept) / total)
    assert sum(m for m, *_ in kept) - under + over == sum(a for _, a, _, _ in kept)
    assert found.difference_points == pytest.approx(
        100 * (over - under) / total, abs=1e-9
    )  # fmt: skip
    assert found.mean_error_points == pytest.approx(
        sum(100 * abs(a - m) / i for m, a, i, _ in kept) / len(kept)
    )
    for gap in found.where:
        mine = [(m, a) for m, a, _, r in kept if r == "abcd".index(gap.value)]
        assert (gap.requests, gap.model_tokens, gap.engine_tokens) == (
            len(mine), sum(m for m, _ in mine), sum(a for _, a in mine),
        )  # fmt: skip


def traffic(n: int = 2000, seed: int = 7) -> tuple[Array, Array, Array, Index]:
    """Prompts of conversations over four replicas; the engine finds what the model says, but for
    a few tokens of rounding: (model, actual, inputs, replica)."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(200, 4000, n).astype(float)
    model = np.floor(inputs * rng.choice([0.0, 0.3, 0.8], n) / 16) * 16
    actual = np.maximum(model - 16 * rng.integers(0, 2, n), 0.0)
    return model, actual, inputs, rng.integers(0, 4, n)


REPLICAS = ("gpu-a", "gpu-b", "gpu-c", "gpu-d")


@pytest.mark.parametrize("factor", [0.0, 0.4])
def test_a_sick_replica_is_named(factor: float) -> None:
    model, actual, inputs, replica = traffic()
    sick = replica == 2
    actual[sick] = np.floor(actual[sick] * factor)
    rng = np.random.default_rng(1)
    keys: Keys = {
        "tenant": (rng.integers(0, 5, len(model)), [f"t{i}" for i in range(5)]),
        "replica": (replica, REPLICAS),
        "hour": (np.arange(len(model)) // 500, ["0", "1", "2", "3"]),
    }
    found = beside_reported(model, actual, inputs, keys, "rounding")
    assert found is not None
    assert [(g.column, g.value) for g in found.where] == [("replica", "gpu-c")]
    gap = found.where[0]
    assert gap.requests == int(sick.sum())
    assert gap.model_tokens == int(model[sick].sum())
    assert gap.engine_tokens == int(actual[sick].sum())
    assert "of the difference is where replica is gpu-c" in found.says
    assert "tokens fewer than modelled" in found.says


def test_a_replica_of_most_requests_is_named_too() -> None:
    model, actual, inputs, replica = traffic()
    replica = np.where(replica < 3, 0, 1)  # three quarters go to one of two
    actual[replica == 0] = 0.0
    found = beside_reported(model, actual, inputs, {"replica": (replica, REPLICAS)}, "routing")
    assert found is not None
    assert [g.value for g in found.where] == ["gpu-a"]


def test_a_group_in_which_the_engine_found_more() -> None:
    """The cache of one route lives longer than the model thinks."""
    model, actual, inputs, route = traffic()
    model[route == 1] = 0.0
    found = beside_reported(model, actual, inputs, {"route": (route, REPLICAS)}, "expiry")
    assert found is not None
    assert [g.value for g in found.where] == ["gpu-b"]
    assert "tokens more than modelled" in found.says


def test_a_difference_everywhere_is_nowhere() -> None:
    """A fifth of everything is lost: late turns lose more, because they have more."""
    model, _, inputs, replica = traffic()
    actual = np.floor(model * 0.8)
    turn = np.digitize(model / inputs, [0.1, 0.5])
    keys: Keys = {"replica": (replica, REPLICAS), "turn": (turn, ["1", "2", "3"])}
    found = beside_reported(model, actual, inputs, keys, "rounding")
    assert found is not None
    assert found.where == ()
    assert "not in any one part of the log" in found.says


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_chance_is_not_named(seed: int) -> None:
    """Errors that have nothing to do with any column, over 40 groups."""
    rng = np.random.default_rng(seed)
    model, _, inputs, _ = traffic(400, seed)
    actual = np.where(rng.random(400) < 0.2, 0.0, model)
    keys: Keys = {
        name: (rng.integers(0, size, 400), [str(i) for i in range(size)])
        for name, size in (("a", 3), ("b", 7), ("c", 30))
    }
    found = beside_reported(model, actual, inputs, keys, "rounding")
    assert found is not None
    assert found.where == ()


def test_a_model_that_fits_points_nowhere() -> None:
    model, _, inputs, replica = traffic()
    actual = model.copy()
    actual[replica == 1] -= np.minimum(actual[replica == 1], 8.0)
    found = beside_reported(model, actual, inputs, {"replica": (replica, REPLICAS)}, "rounding")
    assert found is not None
    assert found.where == ()
    assert "difference is" not in found.says


def test_few_requests_are_not_a_group() -> None:
    model, actual, inputs, _ = traffic()
    alone = np.zeros(len(model), dtype=np.int64)
    alone[:3] = 1
    inputs[:3], model[:3], actual[:3] = 1e6, 1e6, 0.0
    found = beside_reported(model, actual, inputs, {"tenant": (alone, ["x", "y"])}, "rounding")
    assert found is not None
    assert found.where == ()


def test_what_goes_both_ways_is_no_direction() -> None:
    """One replica is only less certain than the rest: as much more as less."""
    model, actual, inputs, replica = traffic(4000)
    model = np.maximum(model, 512.0)
    actual = model + np.where(replica == 1, 300.0, 10.0) * np.where(np.arange(4000) % 2, 1, -1)
    found = beside_reported(model, actual, inputs, {"replica": (replica, REPLICAS)}, "rounding")
    assert found is not None
    assert found.where == ()


@pytest.mark.parametrize(("rate", "named"), [(0.3, False), (0.5, True)])
def test_a_little_more_than_the_rest_is_not_enough(rate: float, named: bool) -> None:
    """However many requests there are; the others lose a fifth."""
    model, _, inputs, replica = traffic(20_000)
    actual = np.floor(model * np.where(replica == 1, 1 - rate, 0.8))
    found = beside_reported(model, actual, inputs, {"replica": (replica, REPLICAS)}, "rounding")
    assert found is not None
    assert [g.value for g in found.where] == ["gpu-b"] * named


def test_where_most_is_lost_comes_first() -> None:
    model, actual, inputs, replica = traffic(8000)
    twelfth = replica * 3 + np.arange(8000) % 3
    actual[twelfth == 4] = np.floor(actual[twelfth == 4] * 0.6)
    actual[twelfth == 7] = 0.0
    names = [f"r{i}" for i in range(12)]
    found = beside_reported(model, actual, inputs, {"replica": (twelfth, names)}, "rounding")
    assert found is not None
    assert [g.value for g in found.where] == ["r7", "r4"]


def test_at_most_eight_and_the_largest_first() -> None:
    model, actual, inputs, replica = traffic()
    actual[replica == 3] = 0.0
    actual[(replica == 0) & (np.arange(len(model)) % 2 == 0)] = 0.0
    keys: Keys = {f"column {i}": (replica, REPLICAS) for i in range(12)}
    found = beside_reported(model, actual, inputs, keys, "rounding")
    assert found is not None
    assert len(found.where) == reconcile.TOP
    assert {g.value for g in found.where} == {"gpu-d"}


def test_what_is_unknown_is_left_out_and_said() -> None:
    model = np.array([100.0, 100.0, 100.0, math.nan])
    actual = np.array([50.0, math.nan, 70.0, 10.0])
    inputs = np.array([200.0, 200.0, 0.0, 100.0])
    found = beside_reported(model, actual, inputs, {}, "ideal")
    assert found is not None
    assert (found.engine_share, found.model_share) == (0.25, 0.5)
    assert found.says == (
        "the engine found 25.0 % of the prompt tokens; the model of shared content says 50.0 %: "
        "25.0 points less (0 tokens more where it found more, 50 fewer where it found fewer; "
        "25.0 points of a prompt on average); 3 requests without a reported count are left out"
    )
    assert beside_reported(model, np.full(4, math.nan), inputs, {}, "ideal") is None
    assert beside_reported(model[:0], actual[:0], inputs[:0], {}, "ideal") is None


def test_names_from_the_log_are_made_visible() -> None:
    model, actual, inputs, replica = traffic()
    actual[replica == 1] = 0.0
    names = ("a", "\x1b[31mevil\u202e\n", "c", "d")
    found = beside_reported(model, actual, inputs, {"replica": (replica, names)}, "rounding")
    assert found is not None
    assert "\\x1b[31mevil\\u202e\\n" in found.says
    assert "\x1b" not in found.says

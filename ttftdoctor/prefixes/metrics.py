"""A saved page of metrics: what an engine's own counters say of its prefix cache.

The page is text as Prometheus scrapes it, in its own format or as OpenMetrics. What each engine
counts, in its own words (``_total`` is left out; a colon may be an underscore):

============  ====================================  ===========================================
engine        found / looked up                     what is counted
============  ====================================  ===========================================
vLLM          ``vllm:prompt_tokens_cached`` /       tokens, once per prompt; both caches, its
              ``vllm:prompt_tokens``                own and a connector's
vLLM          ``vllm:prefix_cache_hits`` /          tokens; a connector's cache is counted apart
              ``vllm:prefix_cache_queries``         (``vllm:external_prefix_cache_hits``) and is
                                                    added. Until July 2026 a prompt that waited
                                                    was counted anew at each try (issue 43736)
vLLM, early   ``vllm:gpu_prefix_cache_hits`` /      blocks in the first releases of V1, then
              ``vllm:gpu_prefix_cache_queries``     tokens: the page's HELP says which
vLLM V0       ``vllm:gpu_prefix_cache_hit_rate``    a rate of blocks; -1 where the cache is off
SGLang        ``sglang:cached_tokens`` /            tokens, by ``cache_source``; each request
              ``sglang:prompt_tokens``              counts by source or as ``total``, not both
SGLang, old   ``sglang:cache_hit_rate``             a rate, of late batches (once in per cent)
TensorRT-LLM  ``trtllm_prompt_cached_tokens`` /     tokens
              ``trtllm_prompt_tokens``
TensorRT-LLM  ``trtllm_kv_cache_reused_blocks`` /   blocks
              that and ``.._missed_blocks``
TensorRT-LLM  ``trtllm_kv_cache_hit_rate``          a rate of blocks
llama.cpp     ``llamacpp:prompt_tokens_cached`` /   tokens; ``llamacpp:prompt_tokens`` are those
              that and ``llamacpp:prompt_tokens``   computed, so both together are the prompts
Dynamo        ``dynamo_frontend_cached_tokens`` /   tokens, sums of histograms; with routing by
              ``..input_sequence_tokens``           KV the router's estimate
LMCache       ``lmcache:num_lookup_hits`` /         tokens in LMCache, whatever the engine itself
              ``lmcache:num_lookup_tokens``         holds
============  ====================================  ===========================================

TGI, LMDeploy, Ollama and llama.cpp before it counted cached tokens say nothing of the kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr, tr_n
from ttftdoctor.report import clean
from ttftdoctor.units import count

#: Larger pages, and longer lines of what is looked for, are refused: no engine writes them.
MAX_PAGE_CHARS = 32 * 2**20
MAX_LINE_CHARS = 4 * 2**10
#: More found than looked up by this part of it cannot be a matter of rounding.
OVER = 1e-3
#: Fewer things looked up than this part of the prompt tokens are blocks, if the page does not say.
BLOCKS_BELOW = 0.25

Unit = Literal["tokens", "blocks"]
#: A name, without ``_total`` and with an underscore for the colon, and labels in order.
Series = tuple[str, tuple[tuple[str, str], ...]]
Values = Mapping[Series, float]


@dataclass(frozen=True)
class Counters:
    """What an engine counted: what it found in its cache, and what it looked up.

    ``basis`` is the name of what was found, or of the rate. ``hits_by``, ``queried_by`` and
    ``prompt_by`` hold each series of the page, so that two pages can be told apart series by
    series. ``rate`` is a gauge, where there is no counter. ``notes`` are sentences on what the
    figures do not say; no text of a label is in them.
    """

    engine: str
    unit: Unit
    basis: str
    hits_by: Values
    queried_by: Values
    prompt_by: Values
    rate: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def hits(self) -> float:
        """Tokens or blocks (``unit``) found, over all series."""
        return math.fsum(self.hits_by.values())

    @property
    def queried(self) -> float:
        """Tokens or blocks (``unit``) looked up, over all series."""
        return math.fsum(self.queried_by.values())

    @property
    def hit_tokens(self) -> float | None:
        """Tokens found; None if the engine counts blocks or gives a rate only."""
        return self.hits if self.unit == "tokens" and self.rate is None else None

    @property
    def queried_tokens(self) -> float | None:
        """Tokens looked up; None if the engine counts blocks or gives a rate only."""
        return self.queried if self.unit == "tokens" and self.rate is None else None

    @property
    def prompt_tokens(self) -> float | None:
        """Tokens of all prompts; None where the page does not count them."""
        return math.fsum(self.prompt_by.values()) if self.prompt_by else None

    @property
    def share(self) -> float | None:
        """What was found of what was looked up, in 0..1; None if nothing was looked up."""
        if self.rate is not None:
            return self.rate
        return min(self.hits / self.queried, 1.0) if self.queried > 0 else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the series that were used, that of what was found first."""
        used = (name for name, _ in (*self.hits_by, *self.queried_by))
        return tuple(_shown(name) for name in dict.fromkeys((self.basis, *used)))

    @property
    def repeats(self) -> float | None:
        """Tokens looked up per prompt token, where they are counted apart; else None."""
        whole = self.prompt_tokens
        if self.unit != "tokens" or self.rate is not None or not whole:
            return None
        return self.queried / whole


@dataclass(frozen=True)
class _Recipe:
    """Which families to take from a page; ``also`` is added to what was found if it is there."""

    engine: str
    unit: Unit
    hits: tuple[str, ...]
    queried: tuple[str, ...]
    prompt: tuple[str, ...]
    also: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class _Gauge:
    """A rate that stands in where nothing is counted."""

    engine: str
    unit: Unit
    name: str
    prompt: str
    note: str


#: In the order in which they are tried: the engine before what stands in front of it or behind.
_RECIPES = (
    _Recipe(
        "vLLM", "tokens", ("vllm_prompt_tokens_cached",), ("vllm_prompt_tokens",),
        ("vllm_prompt_tokens",),
    ),
    _Recipe(
        "vLLM", "tokens", ("vllm_prefix_cache_hits",), ("vllm_prefix_cache_queries",),
        ("vllm_prompt_tokens",), also=("vllm_external_prefix_cache_hits",),
    ),
    _Recipe(
        "vLLM", "tokens", ("vllm_gpu_prefix_cache_hits",), ("vllm_gpu_prefix_cache_queries",),
        ("vllm_prompt_tokens",),
    ),
    _Recipe(
        "SGLang", "tokens", ("sglang_cached_tokens",), ("sglang_prompt_tokens",),
        ("sglang_prompt_tokens",),
    ),
    _Recipe(
        "TensorRT-LLM", "tokens", ("trtllm_prompt_cached_tokens",), ("trtllm_prompt_tokens",),
        ("trtllm_prompt_tokens",),
    ),
    _Recipe(
        "TensorRT-LLM", "blocks", ("trtllm_kv_cache_reused_blocks",),
        ("trtllm_kv_cache_reused_blocks", "trtllm_kv_cache_missed_blocks"),
        ("trtllm_prompt_tokens",),
    ),
    _Recipe(
        "llama.cpp", "tokens", ("llamacpp_prompt_tokens_cached",),
        ("llamacpp_prompt_tokens_cached", "llamacpp_prompt_tokens"),
        ("llamacpp_prompt_tokens_cached", "llamacpp_prompt_tokens"),
    ),
    _Recipe(
        "Dynamo", "tokens", ("dynamo_frontend_cached_tokens_sum",),
        ("dynamo_frontend_input_sequence_tokens_sum",),
        ("dynamo_frontend_input_sequence_tokens_sum",),
        note=mark(
            "with routing by KV this is what the router expected, not what the engine found"
        ),
    ),
    _Recipe(
        "LMCache", "tokens", ("lmcache_num_lookup_hits",), ("lmcache_num_lookup_tokens",), (),
        note=mark(
            "this is LMCache alone: what the engine's own cache holds as well is not told apart"
        ),
    ),
)  # fmt: skip
_GAUGES = (
    _Gauge(
        "vLLM", "blocks", "vllm_gpu_prefix_cache_hit_rate", "vllm_prompt_tokens",
        mark("this engine gives a rate, not counters"),
    ),
    _Gauge(
        "SGLang", "tokens", "sglang_cache_hit_rate", "sglang_prompt_tokens",
        mark("this engine gives a rate of its latest batches, not counters"),
    ),
    _Gauge(
        "TensorRT-LLM", "blocks", "trtllm_kv_cache_hit_rate", "trtllm_prompt_tokens",
        mark("this page gives a rate, not counters"),
    ),
)  # fmt: skip

#: Families whose pages are recognised, and say nothing of cached tokens.
_SILENT = {
    "tgi_": "TGI", "lmdeploy": "LMDeploy", "ollama": "Ollama", "llamacpp": "llama.cpp",
    "vllm": "vLLM", "sglang": "SGLang", "trtllm_": "TensorRT-LLM", "nv_trt_llm": "Triton",
    "dynamo_": "Dynamo", "lmcache": "LMCache",
}  # fmt: skip

_WANTED = frozenset(
    name for r in _RECIPES for name in (*r.hits, *r.queried, *r.prompt, *r.also)
) | {name for g in _GAUGES for name in (g.name, g.prompt)}  # fmt: skip
#: Ends of samples' names that belong to the family without them.
_ENDS = ("_total", "_created", "_sum", "_count", "_bucket")
_FAMILIES = frozenset(name.removesuffix("_sum") for name in _WANTED)
_NAME = re.compile(r"[ \t]*(?:#[ \t]+(?:HELP|TYPE|UNIT)[ \t]+)?([A-Za-z_:][A-Za-z0-9_:]*)")
_SAMPLE = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?[ \t]+[-+0-9.NI]")

_HELP = (
    "save the engine's page with `curl http://ENGINE/metrics > page`; it must have "
    "vllm:prefix_cache_queries_total and vllm:prefix_cache_hits_total (vLLM), "
    "sglang:prompt_tokens_total and sglang:cached_tokens_total (SGLang, started with "
    "--enable-metrics), trtllm_prompt_tokens_total and trtllm_prompt_cached_tokens_total "
    "(TensorRT-LLM), llamacpp:prompt_tokens_total and llamacpp:prompt_tokens_cached_total "
    "(llama.cpp, started with --metrics), or the counters of Dynamo's frontend or of LMCache"
)


def counters(text: str) -> Counters:
    """Read what a page says of the prefix cache; all replicas and models on it are summed.

    Parameters
    ----------
    text
        The page, in the format of Prometheus or of OpenMetrics.

    Raises
    ------
    InputError
        If it is no such page, is cut off, holds a series twice or one that is no count, or has
        none of the counters.
    """
    page = _Page.read(text)
    best = idle = None
    for made in _candidates(page):
        # Counters of an engine that has served nothing yet must not hide another's.
        if made.share is not None:
            best = made
            break
        idle = idle or made
    best = best or idle
    if best is None:
        known = page.engines()
        raise InputError(
            "the page has no counters of a prefix cache",
            why=None if not known
            else f"it is a page of {' and '.join(known)}, and this one counts no cached tokens",
            help=_HELP,
        )  # fmt: skip
    others = [
        engine
        for engine in dict.fromkeys(r.engine for r in _RECIPES if page.has((*r.hits, *r.queried)))
        if engine != best.engine
    ]
    if others:
        names = tr(" and ").join(others)
        note = tr("the page also has counters of {engines}, not used here", engines=names)
        best = _noted(best, note)
    return best


def counters_between(before: Counters, after: Counters) -> Counters:
    """What was counted from one page to a later one of the same engine, series by series.

    Where a series went back its replica was started anew in between, and what it has counted since
    is taken; that is said in the notes.

    Raises
    ------
    InputError
        If the pages are of different engines, or count different things.
    """
    if (before.basis, before.unit) != (after.basis, after.unit):
        raise InputError(
            "the two pages do not count the same thing",
            why=f"one is of {before.engine}, in {_counts(before)}; "
            f"the other of {after.engine}, in {_counts(after)}",
            help="take both from the same engine",
        )
    if after.rate is not None:
        return _noted(after, tr("a rate has no difference: the later page alone is used"))
    olds = {**before.hits_by, **before.queried_by, **before.prompt_by}
    news = {**after.hits_by, **after.queried_by, **after.prompt_by}
    back = {_replica(key) for key, old in olds.items() if key in news and news[key] < old}
    gone = {_replica(key) for key in olds} - {_replica(key) for key in news}

    def since(values: Values) -> Values:
        return {
            key: new - (0.0 if _replica(key) in back else olds.get(key, 0.0))
            for key, new in values.items()
        }

    made = replace(
        after,
        hits_by=since(after.hits_by),
        queried_by=since(after.queried_by),
        prompt_by=since(after.prompt_by),
    )
    if back:
        made = _noted(
            made,
            tr_n(
                "one replica counted less on the later page (restarted in between, or the pages "
                "are in the wrong order): for these only what is on the later page counts",
                "{n} replicas counted less on the later page (restarted in between, or the pages "
                "are in the wrong order): for these only what is on the later page counts",
                len(back),
                n=len(back),
            ),
        )
    if gone:
        made = _noted(
            made,
            tr_n(
                "one replica of the first page is not on the later one",
                "{n} replicas of the first page are not on the later one",
                len(gone),
                n=len(gone),
            ),
        )
    return made


def together(pages: Sequence[Counters]) -> Counters:
    """Sum the pages of several replicas, one of each.

    Raises
    ------
    InputError
        If there is none, they are of different engines, or give rates, which have no sum.
    """
    if not pages:
        raise InputError("no page of metrics was given", help=_HELP)
    if len(pages) == 1:
        return pages[0]
    if len({(p.basis, p.unit) for p in pages}) > 1:
        raise InputError(
            "the pages do not count the same thing",
            why="; ".join(dict.fromkeys(f"{p.engine}, in {_counts(p)}" for p in pages)),
            help="give pages of one engine's replicas",
        )
    if any(p.rate is not None for p in pages):
        raise InputError(
            "the pages give rates, and rates of several replicas have no sum",
            help="give one page",
        )

    def of_all(parts: Iterable[Values]) -> Values:
        return {
            (name, (*labels, ("page", str(number)))): value
            for number, part in enumerate(parts)
            for (name, labels), value in part.items()
        }

    return replace(
        pages[0],
        hits_by=of_all(p.hits_by for p in pages),
        queried_by=of_all(p.queried_by for p in pages),
        prompt_by=of_all(p.prompt_by for p in pages),
        notes=tuple(dict.fromkeys(note for p in pages for note in p.notes)),
    )


# --- the page -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Page:
    """The families that are looked for: values by series, and what HELP says by name.

    A family may be declared (TYPE or HELP) and have no series: then nothing was counted yet.
    """

    values: Mapping[str, Values]
    declared: frozenset[str]
    says: Mapping[str, str]
    names: frozenset[str]

    @classmethod
    def read(cls, text: str) -> _Page:
        if len(text) > MAX_PAGE_CHARS:
            raise InputError(
                f"the page of metrics has {count(len(text))} characters, too many to be one",
                why=f"at most {count(MAX_PAGE_CHARS)} are read",
            )
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        kept, names, samples = [], set(), False
        for number, line in enumerate(lines, start=1):
            match = _NAME.match(line)
            if match is None:
                continue
            name = match.group(1).replace(":", "_", 1)
            samples = samples or _SAMPLE.match(line) is not None
            names.add(name)
            if _family(name) not in _FAMILIES:
                continue
            if number == len(lines):  # every whole line of a page ends with a line break
                raise InputError(
                    "the page of metrics ends in the middle of a line",
                    where=f"line {number}",
                    why="a figure may be cut off there",
                    help="save the page again, whole",
                )
            if len(line) > MAX_LINE_CHARS:
                raise InputError(
                    f"a line of the page of metrics has {count(len(line))} characters",
                    where=f"line {number}",
                    why=f"at most {count(MAX_LINE_CHARS)} are read",
                )
            # Some writers have the colon in HELP and TYPE and not in the samples.
            kept.append(line[: match.start(1)] + name + line[match.end(1) :])
        if not samples:
            raise InputError(
                "this is no page of metrics",
                why="no line of it is a name, labels and a number",
                help=_HELP,
            )
        return cls._of(_parsed(kept, strict=_is_openmetrics(lines)), frozenset(names))

    @classmethod
    def _of(cls, families: Iterable[Metric], names: frozenset[str]) -> _Page:
        values: dict[str, dict[Series, float]] = {}
        declared, says = set(), {}
        for family in families:
            base = _base(family.name)
            declared |= {base, f"{base}_sum"}
            if family.documentation:
                says[base] = family.documentation
            for sample in family.samples:
                name = _base(sample.name)
                if name not in _WANTED:
                    continue
                series = (name, tuple(sorted(sample.labels.items())))
                if series in values.setdefault(name, {}):
                    raise InputError(
                        f"{_shown(name)} stands twice on the page, with the same labels",
                        why="two pages in one file: of two replicas they would have to be summed, "
                        "of two times they would not",
                        help="save each page to a file of its own",
                    )
                values[name][series] = float(sample.value)
        return cls(values, frozenset(declared), says, names)

    def engines(self) -> list[str]:
        """The engines whose metrics are on the page at all."""
        return [
            engine for start, engine in _SILENT.items()
            if any(name.startswith(start) for name in self.names)
        ]  # fmt: skip

    def has(self, names: Iterable[str]) -> bool:
        return all(name in self.values or name in self.declared for name in names)

    def of(self, names: Iterable[str]) -> Values:
        """All series of these families.

        Raises
        ------
        InputError
            If one is no number or less than nothing.
        """
        found = {k: v for name in names for k, v in self.values.get(name, {}).items()}
        for (name, _), value in found.items():
            if not math.isfinite(value) or value < 0:
                raise InputError(
                    f"{_shown(name)} is {value} on the page, which is no count",
                    help="save the page again",
                )
        return found


def _family(name: str) -> str:
    """The family that a sample's name belongs to, among those that are looked for."""
    if name in _FAMILIES:
        return name
    for end in _ENDS:
        if name.endswith(end) and name.removesuffix(end) in _FAMILIES:
            return name.removesuffix(end)
    return name


def _shown(name: str) -> str:
    """The name as the engine writes it, with its colon."""
    start, _, rest = name.partition("_")
    return f"{start}:{rest}" if start in ("vllm", "sglang", "llamacpp", "lmcache") else name


def _base(name: str) -> str:
    return name.removesuffix("_total")


def _is_openmetrics(lines: list[str]) -> bool:
    return next((line for line in reversed(lines) if line.strip()), "").strip() == "# EOF"


def _parsed(lines: list[str], *, strict: bool) -> list[Metric]:
    """The families of these lines; ``strict`` is OpenMetrics, which ends with a mark."""
    try:
        if strict:
            whole = "\n".join([*lines, "# EOF", ""])
            return list(openmetrics.text_string_to_metric_families(whole))  # type: ignore[no-untyped-call]
        return list(text_string_to_metric_families("\n".join([*lines, ""])))
    # The parsers check little before they take a line apart.
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "the page of metrics cannot be read",
            why=clean(error, 200) or None,
            help="save the page again, whole and as it comes: `curl http://ENGINE/metrics > page`",
        ) from error


# --- what is counted ------------------------------------------------------------------------------


def _candidates(page: _Page) -> Iterator[Counters]:
    """All readings of the page, best first."""
    for recipe in _RECIPES:
        made = _counted(page, recipe)
        if made is not None:
            yield made
    for gauge in _GAUGES:
        made = _rated(page, gauge)
        if made is not None:
            yield made


def _counted(page: _Page, recipe: _Recipe) -> Counters | None:
    if not page.has((*recipe.hits, *recipe.queried)):
        return None
    made = Counters(
        engine=recipe.engine,
        unit=recipe.unit,
        basis=recipe.hits[0],
        hits_by=page.of((*recipe.hits, *recipe.also)),
        queried_by=page.of(recipe.queried),
        prompt_by=page.of(recipe.prompt),
        notes=(tr(recipe.note),) if recipe.note else (),
    )
    if not made.queried_by:
        return None
    if made.hits > made.queried * (1 + OVER):
        raise InputError(
            f"more was found in the cache than was looked up: {count(made.hits)} of "
            f"{count(made.queried)}",
            where=" and ".join(made.names),
            why="these counters do not belong together",
        )
    if recipe.hits[0].startswith("vllm_gpu_"):
        made = replace(made, unit=_unit(page.says.get(recipe.queried[0], ""), made))
    return made


def _unit(says: str, made: Counters) -> Unit:
    """Tokens or blocks: as HELP says, else by how many there are beside the prompt tokens."""
    if "block" in says or "token" in says:
        return "blocks" if "block" in says else "tokens"
    whole = made.prompt_tokens
    return "blocks" if whole and made.queried < BLOCKS_BELOW * whole else "tokens"


def _rated(page: _Page, gauge: _Gauge) -> Counters | None:
    rates = [v for v in page.values.get(gauge.name, {}).values() if math.isfinite(v) and v >= 0]
    if not rates:
        return None
    if max(rates) > 1.0:
        if max(rates) > 100.0:
            raise InputError(f"{_shown(gauge.name)} is {max(rates)} on the page, which is no rate")
        rates = [rate / 100.0 for rate in rates]
    made = Counters(
        gauge.engine, gauge.unit, gauge.name, {}, {}, page.of((gauge.prompt,)),
        rate=math.fsum(rates) / len(rates), notes=(tr(gauge.note),),
    )  # fmt: skip
    if len(rates) > 1:
        note = tr("the mean of {n} rates, which may weigh differently", n=len(rates))
        made = _noted(made, note)
    return made


def _noted(made: Counters, note: str) -> Counters:
    return replace(made, notes=(*made.notes, note))


def _replica(series: Series) -> tuple[tuple[str, str], ...]:
    """Labels that tell a replica, without those that split its own count."""
    return tuple(pair for pair in series[1] if pair[0] != "cache_source")


def _counts(made: Counters) -> str:
    return "a rate" if made.rate is not None else f"{made.unit} ({_shown(made.basis)})"

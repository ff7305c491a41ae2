"""The record types of a diagnosis: everything a report shows, and nothing else.

``Diagnosis.to_dict`` is the ``--json`` document (``ttftdoctor.diagnosis/1``). All records are
frozen; durations are float seconds unless the name says otherwise; unknown is None, never NaN.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ttftdoctor.prefixes.records import PrefixFindings

SCHEMA = "ttftdoctor.diagnosis/1"

Status = Literal["primary", "contributing", "minor", "ruled_out", "unjudged"]
Interval = tuple[float, float]

#: The accounts of the ledger, in the order in which they are shown.
ACCOUNTS = (
    "fixed",
    "queue_behind_repeated",
    "queue_behind_new",
    "queue_other",
    "prefill_repeated",
    "prefill_new",
    "unexplained",
)


#: Why rows are not used although nothing is wrong with them: the user asked for others.
NOT_CHOSEN = ("before_since", "after_until", "without_start", "not_where", "where_unknown")


@dataclass(frozen=True)
class Input:
    """One file, and what became of each of its rows.

    ``rows_read == rows_used + sum(rows_rejected.values())``. ``ttft_set_aside`` counts used rows
    whose TTFT is missing or must not be used, by reason.
    """

    path: str
    format: str
    rows_read: int
    rows_used: int
    rows_rejected: Mapping[str, int] = field(default_factory=dict)
    first_rejects: tuple[tuple[int, str], ...] = ()
    ttft_set_aside: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Extract:
    """The part of a log that was looked at, where all of it is larger than the memory given.

    ``requests`` of ``of``; they came in ``stretches`` (from, to) of its time, ISO 8601 UTC or
    seconds from the zero of a relative clock; without any, requests were drawn at random.
    """

    requests: int
    of: int
    stretches: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Population:
    """Who was measured. ``start`` and ``end`` are ISO 8601 UTC, or None on a relative clock."""

    requests: int
    sessions: int | None
    turns_max: int | None
    start: str | None
    end: str | None
    with_ttft: int
    vantage: str | None
    ttft_mean_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None


@dataclass(frozen=True)
class Grades:
    """How each part of the evidence was come by."""

    session: Literal["logged", "linked", "none"]
    reuse: Literal["content", "reported", "inferred", "none"]
    queue: Literal["logged", "inferred", "none"]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """One sentence of evidence and the figures in it."""

    text: str
    figures: Mapping[str, float | int | str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class WorstRow:
    """One request, and the seconds of it that are laid to a cause (None: to no cause).

    ``path`` and ``line`` say where it stands in the log; ``start`` is ISO 8601 UTC, or a time
    since the start of a relative clock.
    """

    request_id: str | None
    path: str | None
    line: int | None
    session_id: str | None
    turn: int | None
    start: str | None
    ttft_s: float
    seconds: float | None


@dataclass(frozen=True)
class Finding:
    """What one cause has to do with the TTFT.

    ``seconds`` is per request with a TTFT, on average. ``needs`` names the columns that would let
    an unjudged cause be judged; ``ruled_out_because`` is one sentence where the cause is ruled
    out. ``rows`` are the requests with the most of it, and ``worked_example`` spells out the
    first of them: its figures in seconds add up to its TTFT.
    """

    id: str
    family: str
    status: Status
    seconds: float | None = None
    share_of_ttft: float | None = None
    share_of_growth: float | None = None
    interval: Interval | None = None
    evidence: tuple[Statement, ...] = ()
    needs: tuple[str, ...] = ()
    confidence: float = 0.0
    ruled_out_because: str | None = None
    rows: tuple[WorstRow, ...] = ()
    worked_example: Statement | None = None


@dataclass(frozen=True)
class Amplifier:
    """A cause that makes the primary one worse and would shrink with it."""

    id: str
    share_of_ttft: float | None
    text: str


@dataclass(frozen=True)
class Experiment:
    """What would prove or disprove the verdict, and a command that can be run as it stands."""

    text: str
    command: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The answer. ``scope`` names the part of the log that is sick, where not all of it is."""

    primary_cause: str
    family: str
    confidence: float
    headline: str
    contributing: tuple[str, ...] = ()
    scope: Mapping[str, str] | None = None
    amplifiers: tuple[Amplifier, ...] = ()
    next_steps: tuple[str, ...] = ()
    experiment: Experiment | None = None


@dataclass(frozen=True)
class LedgerRow:
    """The mean TTFT of one group of requests, split into accounts that add up to it."""

    group: str
    n: int
    ttft_mean_s: float
    accounts: Mapping[str, float]


@dataclass(frozen=True)
class Slice:
    """One line of a split. ``key`` is what the rows have in common."""

    key: Mapping[str, str | int | float | None]
    n: int
    input_p50: float | None
    uncached_p50: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None


@dataclass(frozen=True)
class Splits:
    """The same figures by turn, input length, turn and length, hour, replica and model."""

    by_turn: tuple[Slice, ...] = ()
    by_input_length: tuple[Slice, ...] = ()
    turn_by_length: tuple[Slice, ...] = ()
    by_hour: tuple[Slice, ...] = ()
    by_replica: tuple[Slice, ...] = ()
    by_model: tuple[Slice, ...] = ()


@dataclass(frozen=True)
class PrefillLine:
    """TTFT without waiting: fixed + a*U + b*U*(C + U/2) + d*(C + U), U and C in thousands.

    ``ms_per_1k_tokens`` is a, ``ms_per_1k_tokens_per_1k_context`` is b and ``ms_per_1k_cached``
    is d; a term the log cannot determine is None.
    """

    fixed_ms: float
    ms_per_1k_tokens: float
    fixed_ms_interval: Interval | None
    ms_per_1k_tokens_interval: Interval | None
    ms_per_1k_tokens_per_1k_context: float | None
    ms_per_1k_tokens_per_1k_context_interval: Interval | None
    ms_per_1k_context: float | None
    n: int
    method: str
    residual_p50_ms: float | None


@dataclass(frozen=True)
class DecodeLine:
    """Time per output token: per token at the median, and its slopes in context and load."""

    ms_per_token: float
    ms_per_token_interval: Interval | None
    slope_per_1k_context_ms: float | None
    slope_per_running_ms: float | None
    n: int
    method: str


@dataclass(frozen=True)
class ModelLine:
    """The prefill line of one model of several, and what a cache does for it.

    ``from_cache`` is the part of the repeated tokens that came from a cache; ``says`` puts it in
    words, with what a cached token costs beside a new one.
    """

    model: str
    requests: int
    ttft_p50_s: float
    fixed_ms: float
    ms_per_1k_tokens: float
    ms_per_1k_context: float | None
    ms_per_1k_context_interval: Interval | None
    from_cache: float | None
    says: str


@dataclass(frozen=True)
class CostLines:
    """The cost of prefill and of decode, as far as the log determines them.

    ``by_model`` is empty where one line stands for all.
    """

    prefill: PrefillLine | None = None
    decode: DecodeLine | None = None
    by_model: tuple[ModelLine, ...] = ()


@dataclass(frozen=True)
class PricedModel:
    """A model of the log, and the prices found for it: money for a million tokens.

    ``priced_as`` is provider and model of the list; ``since`` the day from which the price holds,
    where the list dates it. From ``dearer_from_tokens`` prompt tokens on, a request costs more.
    """

    model: str
    priced_as: str
    input_tokens: int
    input_per_m: float
    cached_per_m: float | None
    write_per_m: float | None
    output_per_m: float | None
    dearer_from_tokens: int | None = None
    since: str | None = None


@dataclass(frozen=True)
class Money:
    """What the tokens that were computed again cost beyond what a cache would have.

    ``amount`` is over the span of the log, with the bounds of the tokens in ``interval``;
    ``price_date`` is the day the prices were looked up for. ``input_spent`` and ``output_spent``
    are the whole bill of the priced rows, ``tokens_priced_share`` their part of the prompt tokens;
    ``refused`` names models that the list does not know.
    """

    currency: str
    amount: float | None
    price_source: str | None
    price_date: str | None
    basis: Literal["tokens", "gpu_hours"] = "tokens"
    interval: Interval | None = None
    per_day: float | None = None
    input_spent: float | None = None
    output_spent: float | None = None
    tokens_priced_share: float | None = None
    gpus_per_replica: float | None = None
    models: tuple[PricedModel, ...] = ()
    refused: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class RepeatedPrefix:
    """Prompt tokens that an earlier request had already computed, and what became of them."""

    grade: Literal["content", "reported", "inferred", "none"]
    input_tokens: int
    repeated_tokens: int | None
    cached_tokens: int | None
    recomputed_tokens: int | None
    recomputed_share: float | None
    bounds: tuple[int, int] | None
    prefill_seconds_wasted: float | None
    money: Money | None = None
    basis: str = ""
    gpu_seconds_wasted: float | None = None


@dataclass(frozen=True)
class Gain:
    """What a remedy would do, by serving the log's own arrivals again with it.

    ``gain_share`` is the part of today's mean TTFT that goes away; ``interval`` bounds it.
    ``gpu_seconds_saved`` and ``money_saved`` are over the span of the log and only there if
    somebody asked for them; below zero the remedy costs more than it saves. ``note`` says why
    where there is little to gain, or what the prediction cannot see.
    """

    id: str
    title: str
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    gain_share: float | None
    interval: Interval | None
    assumptions: tuple[str, ...]
    cost: str
    applies_to: tuple[str, ...]
    gpu_seconds_saved: float | None = None
    money_saved: float | None = None
    money_saved_per_day: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Spread:
    """How much of the spread of TTFT the ledger foretells, and any model could: shares of one.

    ``explained_by_model`` and ``explainable`` are shares of the variance, ``deviation_*`` of the
    mean absolute deviation from the median, which a few very late requests do not rule.
    ``interval`` bounds ``explainable``; ``columns`` are those that a model could use.
    """

    n: int
    explained_by_model: float
    explainable: float
    interval: Interval
    deviation_by_model: float
    deviation_explainable: float
    method: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Slo:
    """How many requests met a target for TTFT."""

    target_s: float
    attainment: float
    goodput_per_s: float | None


@dataclass(frozen=True)
class Bin:
    """One cell of a scatter drawn as density: centre, count and median."""

    x: float
    y: float
    n: int


@dataclass(frozen=True)
class SessionWaste:
    """What one session computed again: its requests, tokens and seconds of prefill.

    ``rows`` are its requests with the most of it.
    """

    session_id: str | None
    requests: int
    tokens: float
    seconds: float
    rows: tuple[WorstRow, ...]


@dataclass(frozen=True)
class Charts:
    """Small tables that only a drawing needs; bounded whatever the size of the log.

    ``ttft_above``: so many requests lie above so many seconds, and are in no bin. ``spreads``: the
    5 %, 25 % and 75 % quantiles of TTFT in seconds, ``today`` and with each remedy by its id.
    ``acts_on``: the accounts of the ledger that a remedy can shrink, by its id. ``waste``: the
    sessions that computed most again, of ``waste_sessions`` that did, ``waste_s`` seconds in all.
    """

    ttft_by_uncached: tuple[Bin, ...] = ()
    ttft_above: tuple[int, float] = (0, 0.0)
    line_points: tuple[tuple[float, float, float, float], ...] = ()  # tokens, s, low, high
    load: tuple[Mapping[str, Any], ...] = ()
    spreads: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    acts_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waste: tuple[SessionWaste, ...] = ()
    waste_sessions: int = 0
    waste_s: float = 0.0


@dataclass(frozen=True)
class Floor:
    """What the hardware allows, beside what was measured."""

    prefill_ms_per_1k_tokens: float
    decode_ms_per_token: float
    prefill_times_floor: float | None
    decode_times_floor: float | None
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer; the ``--json`` document is :meth:`to_dict`."""

    version: str
    inputs: tuple[Input, ...]
    population: Population
    evidence: Grades
    verdict: Verdict
    causes: tuple[Finding, ...]
    ledger: tuple[LedgerRow, ...]
    splits: Splits
    cost_lines: CostLines
    repeated_prefix: RepeatedPrefix
    remedies: tuple[Gain, ...] = ()
    slo: Slo | None = None
    floor: Floor | None = None
    warnings: tuple[str, ...] = ()
    charts: Charts = Charts()
    spread: Spread | None = None
    prefix: PrefixFindings | None = None
    extract: Extract | None = None

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``: plain types, no NaN, unknown is None."""
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "tool": {"name": "ttftdoctor", "version": self.version},
        }
        body = plain(dataclasses.replace(self, charts=Charts()))
        body.pop("version")
        body.pop("charts")
        if self.extract is None:
            body.pop("extract")  # of a log that was looked at as a whole there is nothing to say
        data.update(body)
        for name, rows in data["splits"].items():
            data["splits"][name] = [{**row.pop("key"), **row} for row in rows]
        data["ledger"] = {
            row["group"]: {k: v for k, v in row.items() if k != "group"} for row in data["ledger"]
        }
        return data


def plain(value: Any) -> Any:
    """Records, mappings and tuples as dictionaries and lists; a number that is none as None."""
    if isinstance(value, Input):
        record = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        record["first_rejects"] = [
            {"line": line, "reason": reason} for line, reason in value.first_rejects
        ]
        return record
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value

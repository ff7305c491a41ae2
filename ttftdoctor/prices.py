"""What waste and gains cost: list prices of tokens, or the price of a GPU for an hour.

A service that is billed by token pays the input price for every prompt token that is computed, the
write price where a provider charges for putting it into its cache, and the cached-read price for
what comes from there. A service on hardware of its own pays for seconds of prefill. Either way a
price is looked up or given, never guessed: a model that the list does not know is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ttftdoctor.diagnosis import Interval, Money, PricedModel, RepeatedPrefix
from ttftdoctor.errors import TTFTDoctorError, UsageError
from ttftdoctor.language import tr
from ttftdoctor.measure.rows import Array, Index, Rows
from ttftdoctor.stats import or_zero
from ttftdoctor.treatment import Treatment
from ttftdoctor.units import share

if TYPE_CHECKING:
    from ttftdoctor.measure.replay import Outcome

#: Seconds of a log below which it says nothing of a day.
SHORTEST_SPAN_S = 3600.0
#: Seconds in which a price does not change: those that change by the hour do it on a quarter.
SLOT_S = 900
#: Names shown of models that were priced, and of those that were refused.
MOST_NAMES = 20
#: Tokens of a block: a cache keeps whole ones.
BLOCK = 16


@dataclass(frozen=True)
class Pricing:
    """What to price by: ``listed`` prices of tokens, or ``gpu_hour``, the price of a GPU's hour.

    ``provider`` is the seller of the listed prices (by default the one that the model's name
    belongs to); ``gpus`` are those of one replica, None where nobody said (then 1 is assumed).

    Raises
    ------
    UsageError
        If the two are mixed, or a number makes no sense.
    """

    listed: bool = False
    provider: str | None = None
    gpu_hour: float | None = None
    gpus: float | None = None
    currency: str | None = None

    def __post_init__(self) -> None:
        if self.listed and (self.gpu_hour is not None or self.gpus is not None):
            raise UsageError(
                "--prices and --gpu-hour-price are two ways to pay for the same tokens",
                help="--prices for a provider that bills tokens, --gpu-hour-price for GPUs",
            )
        if self.provider is not None and not self.listed:
            raise UsageError("--provider goes with --prices")
        for name, value in (("--gpu-hour-price", self.gpu_hour), ("--gpus", self.gpus)):
            if value is not None and not 0 < value < 1e9:
                raise UsageError(f"{name} must be above zero")
        if self.listed and self.currency not in (None, "USD"):
            raise UsageError(
                "the list has prices in USD", why=f"--currency {self.currency} would relabel them"
            )
        if self.currency is not None and not self.listed and self.gpu_hour is None:
            raise UsageError("--currency goes with --gpu-hour-price")
        if self.currency is not None and not (
            0 < len(self.currency) <= 12 and self.currency.isprintable()
        ):
            raise UsageError("--currency wants a short label such as USD or EUR")


@dataclass(frozen=True)
class Saved:
    """What a remedy saves over the span of the log; below zero it costs. None is unknown."""

    gpu_seconds: float | None = None
    money: float | None = None
    money_per_day: float | None = None


@dataclass(frozen=True)
class Tariff:
    """Money a token of each row, (n,) each; NaN in the rows whose model has no price.

    ``full`` for a computed prompt token, ``read`` for one from a cache, ``write`` for one written
    to it, ``output`` for a generated one.
    """

    full: Array
    read: Array
    write: Array
    output: Array
    models: tuple[PricedModel, ...] = ()
    refused: tuple[str, ...] = ()
    source: str = ""
    day: str | None = None


@dataclass(frozen=True)
class Till:
    """Turns tokens and seconds of one log into money, by one way of pricing.

    Where the rows are a part of the log, all of it has so many ``times`` their tokens, and lasts
    for ``all_s`` seconds (None: it has no times).
    """

    rows: Rows
    pricing: Pricing
    tariff: Tariff | None = None
    warnings: tuple[str, ...] = field(default=())
    times: float = 1.0
    all_s: float | None = None

    @cached_property
    def span_s(self) -> float | None:
        """First to last arrival, where the log has times."""
        if self.times != 1.0:
            return self.all_s
        known = self.rows.start[np.isfinite(self.rows.start)]
        if not self.rows.order_known or len(known) < 2:
            return None
        return float(np.ptp(known))

    @property
    def gpus(self) -> float:
        """GPUs of one replica."""
        return 1.0 if self.pricing.gpus is None else self.pricing.gpus

    def waste(self, repeated: RepeatedPrefix) -> RepeatedPrefix:
        """The record with the money, and the GPU-seconds, of what was computed again."""
        if self.tariff is not None:
            return replace(repeated, money=self._listed(self.tariff, repeated))
        seconds = repeated.prefill_seconds_wasted
        gpu_seconds = None if seconds is None else seconds * self.gpus
        money = None if self.pricing.gpu_hour is None else self._hired(gpu_seconds, repeated)
        return replace(repeated, gpu_seconds_wasted=gpu_seconds, money=money)

    def saved(self, treatment: Treatment, outcome: Outcome) -> Saved:
        """What a treatment saves, from what the log served again no longer computes."""
        if self.tariff is not None:
            money = _bill_saved(self.rows, self.tariff, treatment, outcome.tokens_saved)
            money = self._of_all(money)
            return Saved(None, money, self._per_day(money))
        gpu_seconds = self._gpu_seconds(treatment, outcome)
        money = None
        if gpu_seconds is not None and self.pricing.gpu_hour is not None:
            money = gpu_seconds * self.pricing.gpu_hour / 3600
        return Saved(gpu_seconds, money, self._per_day(money))

    def _gpu_seconds(self, t: Treatment, outcome: Outcome) -> float | None:
        """GPU-seconds of prefill that go away, less those of servers that are added."""
        if not (t.reuse or t.compact_to is not None or t.servers != 1):
            # Sharing prefill out moves work and removes none; of the rest nobody knows the work.
            return 0.0 if t == Treatment(fair=True) else None
        total = outcome.prefill_s_saved * self.gpus * self.times
        if t.servers != 1:
            servers = self._replicas
            if servers is None or self.span_s is None:
                return None
            total -= (t.servers - 1) * servers * self.span_s * self.gpus
        return total

    @cached_property
    def _replicas(self) -> int | None:
        """How many replicas the log names."""
        if "replica" not in self.rows.scopes:
            return None
        return int(np.count_nonzero(np.bincount(self.rows.server)))

    def _of_all(self, money: float | None) -> float | None:
        return None if money is None else money * self.times

    def _per_day(self, money: float | None) -> float | None:
        if money is None or self.span_s is None or self.span_s < SHORTEST_SPAN_S:
            return None
        return money * 86400 / self.span_s

    def _listed(self, tariff: Tariff, repeated: RepeatedPrefix) -> Money:
        rows = self.rows
        priced = np.isfinite(tariff.full)
        inputs = or_zero(rows.inputs)
        total = float(inputs.sum())
        amount: float | None = None
        interval: Interval | None = None
        if repeated.recomputed_tokens is not None and priced.any():
            amount = _dearer(rows, tariff, rows.recomputed)
            low, high = (
                _dearer(rows, tariff, np.clip(or_zero(bound) - or_zero(rows.cached), 0.0, None))
                for bound in (rows.repeated_low, rows.repeated_high)
            )
            interval = min(low, amount) * self.times, max(high, amount) * self.times
            amount = self._of_all(amount)
        notes = [tr("list prices for single requests: no discount, batch or other tier")]
        written = or_zero(rows.written)
        if written.any():
            notes.append(tr("of what was computed again, written tokens are taken first"))
        if not rows.cached_logged:
            notes.append(tr("cached tokens are not logged: what was read from a cache is inferred"))
        if self.times != 1.0:
            notes.append(tr("counted on the requests looked at; taken to be alike in all others"))
        if any(m.cached_per_m is None for m in tariff.models):
            notes.append(
                tr("where no cached-read price is listed, cached tokens cost the full price")
            )
        spent = None
        if priced.any():
            spent = float(_bill(tariff, rows.uncached, rows.context, written).sum())
        return Money(
            currency="USD",
            amount=amount,
            price_source=tariff.source,
            price_date=tariff.day,
            basis="tokens",
            interval=interval,
            per_day=self._per_day(amount),
            input_spent=self._of_all(spent),
            output_spent=self._of_all(_output_spent(rows, tariff)),
            tokens_priced_share=float(inputs[priced].sum()) / total if total else None,
            models=tuple(
                replace(one, input_tokens=round(one.input_tokens * self.times))
                for one in tariff.models[:MOST_NAMES]
            ),
            refused=tariff.refused[:MOST_NAMES],
            assumed=tuple(notes),
        )

    def _hired(self, gpu_seconds: float | None, repeated: RepeatedPrefix) -> Money:
        price = self.pricing.gpu_hour or 0.0
        amount = None if gpu_seconds is None else gpu_seconds * price / 3600
        interval: Interval | None = None
        again = float(np.nansum(self.rows.recomputed))
        if amount is not None and repeated.bounds is not None and again > 0:
            low, high = (
                float(np.clip(or_zero(bound) - or_zero(self.rows.cached), 0.0, None).sum()) / again
                for bound in (self.rows.repeated_low, self.rows.repeated_high)
            )
            interval = amount * min(low, 1.0), amount * max(high, 1.0)
        assumed = [tr("a second of prefill is a second of the whole replica")]
        if self.pricing.gpus is None:
            assumed.append(tr("1 GPU a replica, as --gpus was not given"))
        return Money(
            currency=self.pricing.currency or "USD",
            amount=amount,
            price_source=f"--gpu-hour-price {price:g}",
            price_date=None,
            basis="gpu_hours",
            interval=interval,
            per_day=self._per_day(amount),
            gpus_per_replica=self.gpus,
            assumed=tuple(assumed),
        )


def till_of(rows: Rows, pricing: Pricing) -> Till:
    """Look up what has to be looked up.

    Raises
    ------
    TTFTDoctorError
        If the list of prices is not installed, or does not know the provider.
    """
    if not pricing.listed:
        return Till(rows, pricing)
    tariff = tariff_of(rows, pricing.provider)
    return Till(rows, pricing, tariff, _refusals(rows, tariff, pricing.provider))


def _refusals(rows: Rows, tariff: Tariff, provider: str | None) -> tuple[str, ...]:
    """What could not be priced, by name, and how much of the log that is."""
    if not tariff.refused:
        return ()
    inputs = or_zero(rows.inputs)
    total = float(inputs.sum())
    without = float(inputs[~np.isfinite(tariff.full)].sum())
    names = tr(", ").join(tariff.refused[:5])
    more = len(tariff.refused) - 5
    if more > 0:
        names = tr("{names} and {n} more", names=names, n=more)
    out = tr("no prompt token is left out of the money")
    if total:
        part = share(without / total)
        out = tr("{part} of the prompt tokens are left out of the money", part=part)
    said = tr("no price in {source} for {models}: {out}", source=tariff.source, models=names,
              out=out)  # fmt: skip
    if provider is None:
        said = tr("{warning}; --provider says whose price to take", warning=said)
    return (said,)


# --- the list of prices ---------------------------------------------------------------------------


def tariff_of(rows: Rows, provider: str | None) -> Tariff:
    """Prices of each row's tokens from the list that comes with ``genai-prices``; no network.

    Parameters
    ----------
    provider
        Whose prices; by default those of the provider that the model's name belongs to.

    Notes
    -----
    The price in force when the request came is taken where the log knows the day, else today's.
    Some are higher from a number of prompt tokens on, and then for all tokens of the request.
    """
    try:
        import genai_prices
        from genai_prices.data_snapshot import find_provider_by_id, get_snapshot
    except ImportError as error:
        raise TTFTDoctorError(
            "--prices needs the list of prices", why=str(error),
            help="python -m pip install genai-prices",
        ) from None  # fmt: skip
    if provider is not None and find_provider_by_id(get_snapshot().providers, provider) is None:
        known = ", ".join(sorted(p.id for p in get_snapshot().providers))
        raise UsageError(f"--provider: the list has no {provider!r}", available=known)
    full, read, write, output = (np.full(rows.n, np.nan) for _ in range(4))
    models: list[PricedModel] = []
    refused: list[str] = []
    moments = _moments(rows)
    for name, at in _by_model(rows):
        if not len(at):
            continue
        found = None if name is None else _found(genai_prices, name, provider, moments.last)
        if found is None:
            refused.append(tr("requests that name no model") if name is None else name)
            continue
        for some, price in _in_force(found.model, moments, at):
            inputs = or_zero(rows.inputs[some])
            full[some] = _a_token(price.input_mtok, inputs)
            read[some] = _a_token(price.cache_read_mtok, inputs, full[some])
            write[some] = _a_token(price.cache_write_mtok, inputs, full[some])
            output[some] = _a_token(price.output_mtok, inputs)
        models.append(_record(name or "", found, int(np.nansum(rows.inputs[at]))))
    models.sort(key=lambda m: -m.input_tokens)
    return Tariff(
        full, read, write, output, tuple(models), tuple(refused),
        source=f"genai-prices {genai_prices.__version__}", day=moments.last.date().isoformat(),
    )  # fmt: skip


@dataclass(frozen=True)
class _Moments:
    """Start of each row as a number of the slot since 1970, or None on a relative clock."""

    slots: Index | None
    last: datetime


def _moments(rows: Rows) -> _Moments:
    known = np.isfinite(rows.start)
    if rows.epoch_us is None or not known.any():
        return _Moments(None, datetime.now(UTC))
    stamps = rows.epoch_us / 1e6 + np.where(known, rows.start, float(np.max(rows.start[known])))
    slots = (stamps // SLOT_S).astype(np.int64)
    return _Moments(slots, _moment(int(slots.max())))


def _moment(slot: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=slot * SLOT_S)


def _by_model(rows: Rows) -> Iterable[tuple[str | None, Index]]:
    """The rows of each model; None where the log names none."""
    scope = rows.scopes.get("model")
    if scope is None:
        return [(None, np.arange(rows.n))]
    order = np.argsort(scope.codes, kind="stable")
    codes = scope.codes[order]
    edges = np.searchsorted(codes, np.arange(-1, len(scope.names) + 1))
    names = (None, *scope.names)
    return [(name, order[edges[i] : edges[i + 1]]) for i, name in enumerate(names)]


def _found(library: Any, name: str, provider: str | None, when: datetime) -> Any:
    """The model of the list that the name stands for; None where it has none, or no input price."""
    try:
        found = library.calc_price(
            library.Usage(input_tokens=0),
            name,
            provider_id=provider,
            genai_request_timestamp=when,
        )
    except (LookupError, ValueError):
        return None
    return None if found.model_price.input_mtok is None else found


def _in_force(model: Any, moments: _Moments, at: Index) -> Iterable[tuple[Index, Any]]:
    """The rows of a model by the price that was in force when they came."""
    if moments.slots is None or not isinstance(model.prices, list):
        return [(at, model.get_prices(moments.last))]
    slots, which = np.unique(moments.slots[at], return_inverse=True)
    prices = [model.get_prices(_moment(int(slot))) for slot in slots]
    kinds = {id(price): price for price in prices}
    ids = np.array([id(price) for price in prices])[which]
    return [(at[ids == key], price) for key, price in kinds.items() if price.input_mtok is not None]


def _a_token(price: Any, inputs: Array, otherwise: Array | None = None) -> Array:
    """Money a token for requests of these prompt tokens; ``otherwise`` where none is listed."""
    if price is None:
        return np.full(len(inputs), np.nan) if otherwise is None else otherwise
    if not hasattr(price, "tiers"):
        return np.full(len(inputs), float(price) / 1e6)
    steps = np.array([float(price.base), *(float(tier.price) for tier in price.tiers)]) / 1e6
    starts = np.array([float(tier.start) for tier in price.tiers])
    values: Array = steps[np.searchsorted(starts, inputs, side="left")]
    return values


def _record(name: str, found: Any, tokens: int) -> PricedModel:
    price = found.model_price

    def base(value: Any) -> float | None:
        return None if value is None else float(getattr(value, "base", value))

    return PricedModel(
        model=name,
        priced_as=f"{found.provider.id}/{found.model.id}",
        input_tokens=tokens,
        input_per_m=base(price.input_mtok) or 0.0,
        cached_per_m=base(price.cache_read_mtok),
        write_per_m=base(price.cache_write_mtok),
        output_per_m=base(price.output_mtok),
        dearer_from_tokens=min((t.start for t in getattr(price.input_mtok, "tiers", ())),
                               default=None),
        since=_since(found.model, price),
    )  # fmt: skip


def _since(model: Any, price: Any) -> str | None:
    """The day from which a price holds, where the list dates it."""
    if not isinstance(model.prices, list):
        return None
    for one in model.prices:
        start = getattr(one.constraint, "start_date", None)
        if one.prices is price and isinstance(start, date):
            return start.isoformat()
    return None


# --- bills ----------------------------------------------------------------------------------------


def _bill(tariff: Tariff, computed: Array, cached: Array, written: Array) -> Array:
    """What the prompt of each row costs; 0 in rows without a price. Arguments in tokens."""
    computed = np.clip(or_zero(computed), 0.0, None)
    written = np.minimum(written, computed)
    return or_zero(
        (computed - written) * tariff.full + written * tariff.write + or_zero(cached) * tariff.read
    )


def _dearer(rows: Rows, tariff: Tariff, again: Array) -> float:
    """What these tokens of each row cost beyond the price of reading them from a cache."""
    again = np.minimum(or_zero(again), np.clip(or_zero(rows.uncached), 0.0, None))
    written = np.minimum(or_zero(rows.written), again)
    extra = (again - written) * (tariff.full - tariff.read)
    extra = extra + written * (tariff.write - tariff.read)
    return float(or_zero(extra).sum())


def _output_spent(rows: Rows, tariff: Tariff) -> float | None:
    spent = rows.outputs * tariff.output
    return float(np.nansum(spent)) if np.isfinite(spent).any() else None


def _bill_saved(rows: Rows, tariff: Tariff, t: Treatment, tokens_saved: float) -> float | None:
    """What the prompts cost less under a treatment that changes which tokens are computed.

    The arithmetic of tokens gives the price of what goes away; how much that is, the log served
    again says (``tokens_saved``), so that money and seconds speak of the same tokens.
    """
    if not np.isfinite(tariff.full).any():
        return None
    if not (t.reuse or t.compact_to is not None):
        arranged = Treatment(fair=t.fair, decode_apart=t.decode_apart)
        return 0.0 if t == arranged else None  # who waits changes, and no token of any bill
    inputs, cached = _treated(rows, t)
    computed = np.clip(or_zero(inputs - cached), 0.0, None)
    now = np.clip(or_zero(rows.uncached), 0.0, None)
    written = or_zero(rows.written)
    before = _bill(tariff, now, rows.context, written)
    after = _bill(tariff, computed, cached, np.clip(written - (now - computed), 0.0, None))
    fewer = float((now - computed).sum())
    if fewer <= 0:
        return float((before - after).sum()) if tokens_saved == 0 else None
    return float((before - after).sum()) * tokens_saved / fewer


def _treated(rows: Rows, t: Treatment) -> tuple[Array, Array]:
    """Prompt tokens and those of them from a cache, per row, under a treatment."""
    inputs, repeated, cached = rows.inputs, or_zero(rows.repeated), rows.context
    if t.compact_to is not None:
        later = (rows.turn > 1) & (inputs > t.compact_to)
        kept = np.where(later, t.compact_to / np.maximum(inputs, 1.0), 1.0)
        inputs, repeated, cached = inputs * kept, repeated * kept, cached * kept
    if t.reuse:
        whole = np.floor(repeated / BLOCK) * BLOCK
        cached = np.maximum(cached, np.minimum(whole, np.maximum(inputs - 1, 0)))
    return inputs, cached

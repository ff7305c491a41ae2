"""What tokens that are computed again cost: seconds by the line, money by list price or GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ttftdoctor.language import tr
from ttftdoctor.measure.lines import Lines
from ttftdoctor.measure.rows import Index
from ttftdoctor.prefixes.ladder import Costs
from ttftdoctor.prefixes.rungs import Asked
from ttftdoctor.stats import Array

if TYPE_CHECKING:
    from ttftdoctor.prices import Till


def costs_of(at: Index, asked: Asked, lines: Lines | None, till: Till | None) -> Costs:
    """Seconds by the fitted line, or by what was given; money by list price or GPU-hour."""
    spend: Callable[[Array, Array], Array] | None = None
    basis = None
    if asked.ms_per_1k_tokens is not None:
        per_token_s = asked.ms_per_1k_tokens / 1e6
        basis = tr(
            "{n} ms per 1,000 computed tokens ({basis})",
            n=format(asked.ms_per_1k_tokens, "g"), basis=tr(asked.ms_per_1k_basis),
        )  # fmt: skip

        def even(new: Array, cached: Array) -> Array:
            del cached
            return new * per_token_s

        spend = even
    elif lines is not None and lines.main.per_1k > 0:
        basis = tr("the cost line fitted to this log")
        spend = lines.work(at)
    if till is not None and till.tariff is not None:
        money = (till.tariff.full - till.tariff.read)[at]
        if not np.isfinite(money).any():
            return Costs(spend, basis)  # no model has a price: the till has a warning that says so
        says = tr(
            "list prices of {source}: a computed token against a cached one",
            source=till.tariff.source,
        )
        return Costs(spend, basis, money, None, says, "USD")
    if till is not None and till.pricing.gpu_hour is not None:
        per_s = till.pricing.gpu_hour * till.gpus / 3600
        says = tr(
            "{price} a GPU-hour, {n} GPUs a replica",
            price=format(till.pricing.gpu_hour, "g"), n=format(till.gpus, "g"),
        )  # fmt: skip
        return Costs(spend, basis, None, per_s, says, till.pricing.currency)
    return Costs(spend, basis)

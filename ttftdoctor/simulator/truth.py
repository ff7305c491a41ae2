"""What really happened: where the time of each request went, and what a remedy changes.

The clock of a request runs from the moment somebody wants an answer to the first token that is
seen. It is the sum, to the picosecond, of

* ``true_gate_s``: held back by the client itself, before anything was sent,
* ``true_retry_s``: refused or failed attempts and the pauses between them,
* ``true_fixed_s``: on the way there and back,
* ``true_cold_s``: while the server loaded or compiled,
* ``true_wait_behind_repeated_s``, ``true_wait_behind_new_s``: while it prefilled other requests'
  repeated and new tokens,
* ``true_wait_other_s``: anything else it did meanwhile, which is decoding and overhead of steps,
* ``true_prefill_new_s``, ``true_prefill_repeated_s``: own prefill; the latter is what a hit on
  tokens that some replica had computed before would have saved,
* ``true_hold_s``: the first token was there, but was not seen (buffered, thinking, not streamed).

``true_queue_s`` is what an engine calls queueing (at the server to first scheduled, less loading)
and ``true_prefill_s`` the sum of the two prefill parts; both overlap with the above.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ttftdoctor.simulator.faults import Columns, columns_of
from ttftdoctor.simulator.scenario import Scenario
from ttftdoctor.simulator.server import Job, Loop
from ttftdoctor.simulator.treat import treat
from ttftdoctor.simulator.workload import PS, Plan, plan

if TYPE_CHECKING:
    import polars as pl

#: The accounts that add up to TTFT, by the name of their column.
ACCOUNTS = (
    "true_gate_s", "true_retry_s", "true_fixed_s", "true_cold_s", "true_wait_behind_repeated_s",
    "true_wait_behind_new_s", "true_wait_other_s", "true_prefill_new_s",
    "true_prefill_repeated_s", "true_hold_s",
)  # fmt: skip


def ttft_ps(job: Job) -> int:
    """The clock of a request: wanted to first token seen."""
    return job.visible + job.way_out - job.wanted


def accounts_ps(job: Job) -> tuple[int, ...]:
    """The parts of a finished request's TTFT, in the order of ``ACCOUNTS``."""
    prefill_new = job.own_new + job.own_overhead
    known = job.cold + job.behind_repeated + job.behind_new + prefill_new + job.own_repeated
    return (
        job.sent - job.wanted,
        job.accepted - job.sent,
        job.way_in + job.way_out,
        job.cold,
        job.behind_repeated,
        job.behind_new,
        job.first - job.arrived - known,
        prefill_new,
        job.own_repeated,
        job.visible - job.first,
    )


@dataclass(frozen=True)
class Run:
    """A scenario served once: ``jobs`` in the order in which they were wanted."""

    scenario: Scenario
    seed: int
    treatment: str | None
    plan: Plan
    jobs: tuple[Job, ...]
    lengths: tuple[int, ...]
    most_taken: dict[str, int]

    @cached_property
    def done(self) -> tuple[Job, ...]:
        """The requests that got an answer."""
        return tuple(job for job in self.jobs if job.status == "ok")

    def columns(self) -> Columns:
        """The columns of the log, as lists of plain values, faults of measurement included."""
        return columns_of(self.plan, self.jobs)

    def frame(self) -> pl.DataFrame:
        """One row a request: the columns of the log, and the true ones beside them.

        All requests are here, also those that ``log.rows`` leaves out of the log. ``ttft_s`` and
        ``e2e_s`` are what the clock showed, before any mix-up of units.
        """
        import polars as pl

        data: dict[str, list[Any]] = dict(self.columns())
        ok = [job.status == "ok" for job in self.jobs]
        data["ttft_s"] = [
            ttft_ps(j) / PS if k else None for j, k in zip(self.jobs, ok, strict=True)
        ]
        data["e2e_s"] = [(j.last + j.way_out - j.wanted) / PS for j in self.jobs]
        parts = [accounts_ps(j) if k else None for j, k in zip(self.jobs, ok, strict=True)]
        for at, name in enumerate(ACCOUNTS):
            data[name] = [None if p is None else p[at] / PS for p in parts]
        data["true_prefill_s"] = [None if p is None else (p[7] + p[8]) / PS for p in parts]
        data["true_queue_s"] = [
            (j.scheduled - j.arrived - j.loading) / PS if k else None
            for j, k in zip(self.jobs, ok, strict=True)
        ]
        data["true_cached_tokens"] = [j.cached for j in self.jobs]
        data["true_repeated_tokens"] = [j.repeated for j in self.jobs]
        data["true_running"] = [j.running for j in self.jobs]
        return pl.DataFrame(data, infer_schema_length=None)

    def levels(self) -> dict[str, float | None]:
        """Mean, median and 95th percentile of TTFT in seconds."""
        values = np.array([ttft_ps(job) for job in self.done], dtype=np.float64) / PS
        if not values.size:
            return {"mean": None, "p50": None, "p95": None}
        p50, p95 = np.quantile(values, [0.5, 0.95])
        return {"mean": float(values.mean()), "p50": float(p50), "p95": float(p95)}

    def truth(self) -> dict[str, Any]:
        """All that was planted and measured, as plain data."""
        service = self.plan.service
        causes = service.causes
        done = self.done
        parts = np.array([accounts_ps(job) for job in done], dtype=np.float64).reshape(-1, 10) / PS
        shown = [(j.last - j.first) / PS / (j.turn.output_tokens - 1)
                 for j in done if j.turn.output_tokens > 1]  # fmt: skip
        return {
            "schema": "ttftdoctor.truth/1",
            "scenario": self.scenario.name,
            "title": service.title,
            "seed": self.seed,
            "treatment": self.treatment,
            "causes": {
                "primary": causes.primary,
                "alternatives": list(causes.alternatives),
                "contributing": list(causes.contributing),
                "amplifiers": list(causes.amplifiers),
            },
            "scope": dict(causes.scope) or None,
            "cost_lines": {
                server.model: {
                    "fixed_ms": service.gateway.ms + service.gateway.jitter_ms,
                    "step_overhead_ms": server.step_overhead_ms,
                    "ms_per_1k_tokens": server.ms_per_1k,
                    "ms_per_1k_tokens_per_1k_context": server.ms_per_1k_per_1k,
                    "hit_ms_per_1k_tokens": server.hit_ms_per_1k,
                    "chunk_tokens": server.chunk_tokens,
                    "decode_ms": server.decode_ms,
                    "decode_ms_per_running": server.decode_ms_per_running,
                    "decode_ms_per_1k_context": server.decode_ms_per_1k_context,
                }
                for server in service.server
            },
            "decode_ms_per_token": float(np.median(shown)) * 1e3 if shown else None,
            "requests": len(self.jobs),
            "sessions": len({job.session.number for job in self.jobs}),
            "span_s": self.plan.end / PS,
            "tokens": {
                "input": sum(job.input for job in done),
                "cached": sum(job.cached for job in done),
                "repeated": sum(job.repeated for job in done),
                "recomputed": sum(max(job.repeated - job.cached, 0) for job in done),
            },
            "today": self.levels(),
            "accounts_mean_s": {
                name: float(parts[:, at].mean()) if len(parts) else None
                for at, name in enumerate(ACCOUNTS)
            },
        }


def serve(scenario: Scenario, seed: int | None = None, treatment: str | None = None) -> Run:
    """Serve a scenario's workload of one seed (0 by default), with remedies if any are named.

    Parameters
    ----------
    treatment
        A remedy's id, or several joined by ``+``.
    """
    number = 0 if seed is None else seed
    return _serve(scenario, number, treatment, treat(plan(scenario, number), treatment))


def _serve(scenario: Scenario, seed: int, treatment: str | None, treated: Plan) -> Run:
    loop = Loop(treated)
    jobs = tuple(loop.serve())
    most = {f"{r.server.model}/{r.number}": r.most_taken for r in loop.all}
    return Run(scenario, seed, treatment, treated, jobs, tuple(loop.prompts.lengths), most)


def remedies_truth(
    scenario: Scenario, seed: int | None, ids: Iterable[str]
) -> dict[str, dict[str, float | None]]:
    """What each remedy gives when the same people ask again with it in place.

    Gives mean, median and 95th percentile in seconds, and the gain as a share of today's mean;
    a remedy that changes nothing gains exactly 0.
    """
    number = 0 if seed is None else seed
    drawn = plan(scenario, number)
    today = _serve(scenario, number, None, drawn).levels()["mean"]
    out: dict[str, dict[str, float | None]] = {}
    for name in ids:
        treated = treat(drawn, name)
        levels = _serve(scenario, number, name, treated).levels()
        mean = levels["mean"]
        gain = None if not today or mean is None else 1 - mean / today
        out[name] = {
            "ttft_mean_s": mean,
            "ttft_p50_s": levels["p50"],
            "ttft_p95_s": levels["p95"],
            "gain_share": gain,
        }
    return out

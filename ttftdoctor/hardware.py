"""What the hardware allows: prefill bound by arithmetic, decode by memory bandwidth.

Prefill of n tokens takes about 2 FLOPs a parameter and token (Kaplan et al. 2020), decode reads
every weight, and the KV cache of the context, once a step. Where both take equally long on one
machine lies the number of tokens a step at which decode, too, becomes bound by arithmetic.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ttftdoctor.diagnosis import Floor
from ttftdoctor.errors import UsageError
from ttftdoctor.language import tr
from ttftdoctor.units import figure

#: Share of the peak FLOP/s that prefill reaches in practice (low and high).
USUAL_UTILISATION = (0.40, 0.50)


#: Values beyond these are slips, and would make infinities of sums.
_LEAST, _MOST = 1e-9, 1e18


@dataclass(frozen=True)
class Machine:
    """A model on a machine: parameters, bytes each, FLOP/s, bytes/s, KV bytes a token.

    ``kv_bytes_per_token`` defaults to what a dense transformer with full attention of that size
    has (about 0.5 MB for 7e9 parameters at 2 bytes).
    """

    params: float
    bytes_per_param: float
    flops: float
    bandwidth: float
    kv_bytes_per_token: float | None = None

    def kv(self) -> float:
        """KV-cache bytes a token of context."""
        if self.kv_bytes_per_token is not None:
            return self.kv_bytes_per_token
        # Dense models keep layers * width * 2 * bytes; 32 layers of 4,096 for 7e9 parameters,
        # and layers * width grows with about the 2/3 power of the parameters.
        return float(2 * 32 * 4096 * self.bytes_per_param * (self.params / 7e9) ** (2 / 3))


@dataclass(frozen=True)
class Roofline:
    """The figures of one request; FLOP, bytes, seconds, and shares of the machine's peak."""

    prefill_flop: float
    prefill_ideal_s: float
    prefill_usual_s: tuple[float, float]
    prefill_bandwidth_use: float
    decode_flop_per_token: float
    decode_bytes_per_token: float
    decode_kv_bytes: float
    decode_ideal_s: float
    decode_flops_use: float
    decode_total_s: float
    balance_tokens_per_step: float
    ms_per_1k_tokens_usual: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)


def roofline(machine: Machine, input_tokens: float, output_tokens: float) -> Roofline:
    """Work out the floor of one request.

    Parameters
    ----------
    machine
        All values above zero and at most 1e18 (so is ``kv_bytes_per_token``, which may be zero).
    input_tokens, output_tokens
        Length of the prompt and of the answer.

    Raises
    ------
    UsageError
        If a value is not above zero, or too large for any machine.

    Examples
    --------
    >>> r = roofline(Machine(7e9, 2, 312e12, 2e12), 2000, 500)
    >>> f"{r.prefill_flop:.1e} FLOP, {r.prefill_ideal_s * 1e3:.0f} ms"
    '2.8e+13 FLOP, 90 ms'
    """
    for name, value in (
        ("--params", machine.params),
        ("--bytes-per-param", machine.bytes_per_param),
        ("--flops", machine.flops),
        ("--bandwidth", machine.bandwidth),
        ("--input", input_tokens),
        ("--output", output_tokens),
    ):
        if not _LEAST <= value <= _MOST:
            raise UsageError(f"{name} must be a number above zero, and at most {_MOST:.0e}")
    kv_given = machine.kv_bytes_per_token
    if kv_given is not None and not 0 <= kv_given <= _MOST:
        raise UsageError(f"--kv-bytes-per-token must be from zero to {_MOST:.0e}")
    flop = 2 * machine.params * input_tokens
    ideal = flop / machine.flops
    low, high = USUAL_UTILISATION
    weights = machine.params * machine.bytes_per_param
    context = input_tokens + output_tokens / 2
    kv = machine.kv() * context
    step_bytes = weights + kv
    step_flop = 2 * machine.params
    step = max(step_bytes / machine.bandwidth, step_flop / machine.flops)
    return Roofline(
        prefill_flop=flop,
        prefill_ideal_s=ideal,
        prefill_usual_s=(ideal / high, ideal / low),
        prefill_bandwidth_use=min(1.0, (weights / machine.bandwidth) / ideal),
        decode_flop_per_token=step_flop,
        decode_bytes_per_token=step_bytes,
        decode_kv_bytes=kv,
        decode_ideal_s=step,
        decode_flops_use=step_flop / step / machine.flops,
        decode_total_s=step * output_tokens,
        balance_tokens_per_step=step_bytes / machine.bandwidth * machine.flops / step_flop,
        ms_per_1k_tokens_usual=(
            2e6 * machine.params / machine.flops / high,
            2e6 * machine.params / machine.flops / low,
        ),
    )


def floor_of(
    machine: Machine, measured_ms_per_1k: float | None, measured_ms_per_token: float | None,
    input_tokens: float,
) -> Floor:  # fmt: skip
    """The floor set beside the measured lines of a log with prompts of ``input_tokens``."""
    r = roofline(machine, max(input_tokens, 1.0), 1.0)
    prefill_floor = 2e6 * machine.params / machine.flops
    decode_floor = r.decode_ideal_s * 1e3
    low, high = r.ms_per_1k_tokens_usual
    parts = [
        tr(
            "this hardware allows {prefill} ms per 1,000 tokens of prefill at full arithmetic "
            "({low} to {high} ms at 40-50 % of it) and {decode} ms a token of decode",
            prefill=figure(prefill_floor), low=figure(low), high=figure(high),
            decode=figure(decode_floor),
        )
    ]  # fmt: skip
    times = None if not measured_ms_per_1k else measured_ms_per_1k / prefill_floor
    decode_times = None if not measured_ms_per_token else measured_ms_per_token / decode_floor
    if times is not None:
        parts.append(tr("measured prefill takes {n} times the floor", n=format(times, ".2g")))
    if decode_times is not None:
        parts.append(tr("measured decode takes {n} times", n=format(decode_times, ".2g")))
    return Floor(
        prefill_ms_per_1k_tokens=prefill_floor,
        decode_ms_per_token=decode_floor,
        prefill_times_floor=times,
        decode_times_floor=decode_times,
        text=tr("; ").join(parts),
    )

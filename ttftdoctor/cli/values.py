"""What was typed after an option, as what the work takes; or what is wrong with it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttftdoctor.errors import UsageError

if TYPE_CHECKING:
    from ttftdoctor.choose import Only


def pairs_of(values: list[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE``, given any number of times, by name."""
    out = {}
    for value in values or ():
        name, sign, rest = value.partition("=")
        if not sign or not name or not rest:
            raise UsageError(f"{option} wants NAME=VALUE, not {value!r}")
        out[name] = rest
    return out


def units_of(values: list[str] | None) -> dict[str, str]:
    """The units of ``--unit``, by field."""
    from ttftdoctor.units import UNIT_WORDS

    out = pairs_of(values, "--unit")
    for name, word in out.items():
        if word not in UNIT_WORDS:
            raise UsageError(f"--unit {name}: {word!r} is no unit", available="ns, us, ms, s")
    return out


def seconds_of(text: str | None, option: str, example: str) -> float | None:
    """A time as people write it, in seconds: ``800ms``, ``1.5s``, ``5min``."""
    if text is None:
        return None
    import re

    from ttftdoctor.units import UNIT_WORDS, US_PER

    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zµμ]*)\s*", text)
    if match is None or (match[2] and match[2] not in UNIT_WORDS):
        raise UsageError(f"{option} wants a time such as {example}, not {text!r}")
    if not match[2]:
        raise UsageError(f"{option} wants a unit", help=f"say {text}ms or {text}s")
    if float(match[1]) == 0:
        raise UsageError(f"{option} must be above zero")
    return float(match[1]) * US_PER[UNIT_WORDS[match[2]]] / 1e6


def tokens_of(text: str | None, option: str) -> int | None:
    """A number of tokens as people write it: ``3M``, ``500k``, ``1.5G``, ``2_000_000``."""
    if text is None:
        return None
    import re

    match = re.fullmatch(r"\s*(\d[\d_,]*\.?\d*|\.\d+)\s*([kKmMgG]?)\s*", text)
    if match is None:
        raise UsageError(f"{option} wants a number such as 500k or 3M, not {text!r}")
    scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[match[2].lower()]
    value = float(match[1].replace("_", "").replace(",", "")) * scale
    if not 1 <= value < 1e15:
        raise UsageError(f"{option} must be at least one token, and less than 1e15")
    return round(value)


def bytes_of(text: str | None, option: str) -> int | None:
    """An amount of memory as people write it: ``1GiB``, ``800M``, ``2g``; powers of 1,024."""
    if text is None:
        return None
    import re

    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt])i?b?\s*", text.lower())
    if match is None:
        raise UsageError(f"{option} wants an amount such as 800MiB or 2GiB, not {text!r}")
    power: int = "kmgt".index(match[2]) + 1
    return round(float(match[1]) * float(2 ** (10 * power)))


def warm_up_of(text: str) -> bool | float:
    """What to set aside of a run: found by itself, nothing, or so many seconds."""
    if text == "auto":
        return True
    if text in ("0", "0s", "none"):
        return False
    return seconds_of(text, "--warm-up", "30s (or auto, or 0)") or False


def there(option: str, path: str | None) -> None:
    """Refuse a file that is not there before a log is read for nothing."""
    if path is not None and not Path(path).is_file():
        raise UsageError(f"{option}: no such file", where=path)


def manner(mapping: str | None, timezone: str | None) -> AbstractContextManager[Any]:
    """How all logs of the command are read, beside what it hands down itself."""
    from ttftdoctor.mapping.manner import reading_as

    return reading_as(mapping=mapping, timezone=timezone)


def only_of(
    since: str | None, until: str | None, where: str | None, query: str | None
) -> Only | None:
    """Which rows are wanted; None for all."""
    if since is None and until is None and where is None and query is None:
        return None
    from ttftdoctor.choose import Only

    return Only(since, until, where, query)


def machine_of(
    params: float | None, flops: float | None, bandwidth: float | None, bytes_per_param: float
) -> Any:
    """The hardware of ``--params``, ``--flops`` and ``--bandwidth``; None for none."""
    given = (params, flops, bandwidth)
    if all(v is None for v in given):
        return None
    if params is None or flops is None or bandwidth is None:
        raise UsageError("--params, --flops and --bandwidth belong together")
    from ttftdoctor.hardware import Machine

    return Machine(params, bytes_per_param, flops, bandwidth)


def pricing_of(
    listed: bool,
    provider: str | None,
    gpu_hour: float | None,
    gpus: float | None,
    currency: str | None,
) -> Any:
    """How money is put to things; None if nobody asked for it."""
    if not listed and provider is None and gpu_hour is None and gpus is None and currency is None:
        return None
    from ttftdoctor.prices import Pricing

    return Pricing(listed, provider, gpu_hour, gpus, currency)

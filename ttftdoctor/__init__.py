"""Says why the first token of an LLM service is late, from its request log.

``diagnose`` reads logs and answers; ``read`` only reads. A diagnosis is written with
``to_json``, ``to_markdown``, ``to_html`` or ``to_text``, and inside
``with ttftdoctor.speaking("zh")`` in Chinese. Names are loaded on first use, so that
importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttftdoctor.api import (
        explain,
        inspect,
        to_csv,
        to_html,
        to_json,
        to_markdown,
        to_openmetrics,
        to_text,
    )
    from ttftdoctor.choose import Only
    from ttftdoctor.comparisons.flow import compare
    from ttftdoctor.comparisons.records import Comparison
    from ttftdoctor.contrasts.flow import contrast
    from ttftdoctor.contrasts.records import Contrasted
    from ttftdoctor.conversion import Converted, convert
    from ttftdoctor.diagnosis import Diagnosis
    from ttftdoctor.errors import TTFTDoctorError
    from ttftdoctor.gate.baseline import Baseline
    from ttftdoctor.gate.flow import baseline, check
    from ttftdoctor.gate.history import History
    from ttftdoctor.gate.records import Check
    from ttftdoctor.gate.shelf import history
    from ttftdoctor.hardware import Machine, Roofline, roofline
    from ttftdoctor.intake import Log
    from ttftdoctor.language import speaking
    from ttftdoctor.prefixes.document import PrefixReport
    from ttftdoctor.prefixes.flow import prefix
    from ttftdoctor.prices import Pricing
    from ttftdoctor.run import diagnose, read

_HOMES = {
    "Baseline": "gate.baseline",
    "Check": "gate.records",
    "Comparison": "comparisons.records",
    "Contrasted": "contrasts.records",
    "Converted": "conversion",
    "Diagnosis": "diagnosis",
    "History": "gate.history",
    "Log": "intake",
    "Machine": "hardware",
    "Only": "choose",
    "PrefixReport": "prefixes.document",
    "Pricing": "prices",
    "Roofline": "hardware",
    "TTFTDoctorError": "errors",
    "baseline": "gate.flow",
    "check": "gate.flow",
    "compare": "comparisons.flow",
    "contrast": "contrasts.flow",
    "convert": "conversion",
    "diagnose": "run",
    "explain": "api",
    "history": "gate.shelf",
    "inspect": "api",
    "prefix": "prefixes.flow",
    "read": "run",
    "roofline": "hardware",
    "speaking": "language",
    "to_csv": "api",
    "to_html": "api",
    "to_json": "api",
    "to_markdown": "api",
    "to_openmetrics": "api",
    "to_text": "api",
}

__all__ = [
    "Baseline",
    "Check",
    "Comparison",
    "Contrasted",
    "Converted",
    "Diagnosis",
    "History",
    "Log",
    "Machine",
    "Only",
    "PrefixReport",
    "Pricing",
    "Roofline",
    "TTFTDoctorError",
    "baseline",
    "check",
    "compare",
    "contrast",
    "convert",
    "diagnose",
    "explain",
    "history",
    "inspect",
    "prefix",
    "read",
    "roofline",
    "speaking",
    "to_csv",
    "to_html",
    "to_json",
    "to_markdown",
    "to_openmetrics",
    "to_text",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        value = getattr(importlib.import_module(f"ttftdoctor.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ttftdoctor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""Says why the first token of an LLM service is late, from its request log.

``diagnose`` reads logs and answers; ``read`` only reads. A diagnosis is written with
``to_json``, ``to_markdown``, ``to_html`` or ``to_text``. Names are loaded on first use, so that
importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttftdoctor.api import inspect, to_html, to_json, to_markdown, to_text
    from ttftdoctor.comparisons.flow import compare
    from ttftdoctor.comparisons.records import Comparison
    from ttftdoctor.contrasts.flow import contrast
    from ttftdoctor.contrasts.records import Contrasted
    from ttftdoctor.diagnosis import Diagnosis
    from ttftdoctor.errors import TTFTDoctorError
    from ttftdoctor.hardware import Machine, Roofline, roofline
    from ttftdoctor.intake import Log
    from ttftdoctor.prefixes.document import PrefixReport
    from ttftdoctor.prefixes.flow import prefix
    from ttftdoctor.prices import Pricing
    from ttftdoctor.run import diagnose, read

_HOMES = {
    "Comparison": "comparisons.records",
    "Contrasted": "contrasts.records",
    "Diagnosis": "diagnosis",
    "Log": "intake",
    "Machine": "hardware",
    "PrefixReport": "prefixes.document",
    "Pricing": "prices",
    "Roofline": "hardware",
    "TTFTDoctorError": "errors",
    "compare": "comparisons.flow",
    "contrast": "contrasts.flow",
    "diagnose": "run",
    "inspect": "api",
    "prefix": "prefixes.flow",
    "read": "run",
    "roofline": "hardware",
    "to_html": "api",
    "to_json": "api",
    "to_markdown": "api",
    "to_text": "api",
}

__all__ = [
    "Comparison",
    "Contrasted",
    "Diagnosis",
    "Log",
    "Machine",
    "PrefixReport",
    "Pricing",
    "Roofline",
    "TTFTDoctorError",
    "compare",
    "contrast",
    "diagnose",
    "inspect",
    "prefix",
    "read",
    "roofline",
    "to_html",
    "to_json",
    "to_markdown",
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

"""The check as JUnit XML: a test case a metric, for whatever shows test results.

The form is the one that Jenkins and Ant publish schemas of. What failed is a failure, a
comparison that is none an error; what could not be decided is skipped, or a failure under a
policy that wants to know.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from ttftdoctor.gate.records import Check, Checked
from ttftdoctor.gate.reports import (
    Form,
    limit_of,
    moved_by,
    named,
    policy_of,
    said,
    span,
    who,
)
from ttftdoctor.gate.words import shown
from ttftdoctor.language import tr
from ttftdoctor.report import clean

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def render(check: Check) -> str:
    """One suite with every metric; what moved stands in the suite's output."""
    cases = [_case(metric, check) for metric in check.metrics]
    if check.outcome == "invalid" and not any(c.find("error") is not None for c in cases):
        cases.insert(0, _refused(check))
    tally = {
        word: sum(case.find(tag) is not None for case in cases)
        for word, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    numbers = {"tests": str(len(cases)), **{word: str(n) for word, n in tally.items()}}
    root = ET.Element("testsuites")
    named = {"name": "ttftdoctor", **numbers, "time": "0", "hostname": "localhost"}
    suite = ET.SubElement(root, "testsuite", {**named, "id": "0", "package": "ttftdoctor"})
    stamp = _STAMP.match(check.current.start or "")
    if stamp is not None:
        suite.set("timestamp", stamp.group())
    properties = ET.SubElement(suite, "properties")
    facts = {
        "outcome": check.outcome, "exit_code": str(check.exit_code), "version": check.version,
        "baseline": tr("{side}: {who}", side=check.baseline.label, who=who(check.baseline)),
        "current": tr("{side}: {who}", side=check.current.label, who=who(check.current)),
        "policy": policy_of(check),
    }  # fmt: skip
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=clean(value, 400))
    suite.extend(cases)
    lines = [check.headline, *(m.says for m in check.moved), *check.reasons, *check.notes]
    ET.SubElement(suite, "system-out").text = "\n".join(clean(line) for line in lines)
    ET.SubElement(suite, "system-err").text = "\n".join(clean(line) for line in check.warnings)
    ET.indent(root)
    body: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(metric: Checked, check: Check) -> ET.Element:
    where = metric.scope.route or metric.scope.model
    name = clean(metric.budget, 200) if metric.budget else named(metric)
    case = ET.Element(
        "testcase", name=name, time="0",
        classname="ttftdoctor." + ("budget" if metric.budget else clean(metric.metric, 60)),
    )  # fmt: skip
    tag = {"fail": "failure", "invalid": "error", "inconclusive": "skipped"}.get(metric.outcome)
    if metric.outcome == "inconclusive" and check.inconclusive_fails:
        tag = "failure"
    if tag is not None:
        # Ant's schema knows no attribute of a skipped test; its text is read all the same.
        kind = {} if tag == "skipped" else {"type": metric.outcome, "message": said(metric)}
        ET.SubElement(case, tag, kind).text = _figures(metric, where)
    return case


def _refused(check: Check) -> ET.Element:
    case = ET.Element("testcase", name="comparison", time="0", classname="ttftdoctor.comparison")
    error = ET.SubElement(case, "error", type="invalid", message=clean(check.headline))
    error.text = "\n".join(clean(line) for line in check.reasons)
    return case


def _figures(metric: Checked, where: str | None) -> str:
    lines = [said(metric)]
    pairs = (
        (tr("baseline"), shown(metric.baseline, metric.unit)),
        (tr("now"), shown(metric.current, metric.unit)),
        (tr("raw change"), moved_by(metric.raw_change, metric.raw_change_share, metric.unit)),
        (tr("change at equal mix"), moved_by(metric.change, metric.change_share, metric.unit)),
        (tr("95 % interval"), span(metric)),
        (tr("limit"), limit_of(metric)),
    )
    lines += [
        tr("{name}: {value}", name=name, value=value) for name, value in pairs if value != "-"
    ]
    if where is not None:
        lines.append(tr("scope: {scope}", scope=clean(str(metric.scope), 200)))
    return "\n".join(lines)


FORM = Form("junit", "JUnit XML", render)

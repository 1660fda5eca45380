"""The report as SARIF 2.1.0: for code scanning and every viewer that reads it.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0. Rule IDs and the
fingerprints of issues are the same in every run, so that a service can tell known from new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from nabla_core.host import default_host
from nabla_core.issue import Issue, Location, Quantity
from nabla_core.numbers import json_number
from nabla_core.problem import Problem
from nabla_core.report import AllowedIssue, NotEvaluated, Report
from nabla_core.reporters.style import Style
from nabla_core.rule import Rule

from .redacting import redacted
from .text import inline

__all__ = ["FINGERPRINT", "render"]

FINGERPRINT = "nablaFingerprint/v1"
"""Key of the fingerprint in ``partialFingerprints``."""

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_HALVES = re.compile(r"[\ud800-\udfff]")

Json = dict[str, object]


def render(report: Report, style: Style) -> str:
    """Return the report as a SARIF log of one run."""
    del style  # read by a machine
    shown = redacted(report)
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(shown)]}
    text = json.dumps(log, indent=2, allow_nan=False, ensure_ascii=False)
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text) + "\n"


def _run(report: Report) -> Json:
    ids = _rule_ids(report)
    index = {rule_id: number for number, rule_id in enumerate(ids)}
    names = {inline(issue.rule): inline(issue.name) for issue in _all_issues(report)}
    results = [_result(issue, index) for issue in report.issues]
    results += [_allowed(entry, index) for entry in report.allowed]
    driver: Json = {
        "name": "nabla",
        "rules": [_rule(rule_id, names.get(rule_id, "")) for rule_id in ids],
    }
    version = inline(report.run.versions.get("nabla-core", ""))
    if version:
        driver["version"] = version
    return {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": results,
    }


def _all_issues(report: Report) -> list[Issue]:
    return [*report.issues, *(entry.issue for entry in report.allowed)]


def _rule_ids(report: Report) -> Sequence[str]:
    found = (issue.rule for issue in _all_issues(report))
    return sorted({inline(rule_id) for rule_id in (*report.rules_used, *found)})


def _rule(rule_id: str, name: str) -> Json:
    rule = default_host().registry.get(rule_id)
    if rule is None:
        return {"id": rule_id, "name": name} if name else {"id": rule_id}
    return _descriptor(rule)


def _descriptor(rule: Rule) -> Json:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.rationale},
        "help": {"text": f"{rule.fix}\n\nLimits: {rule.limits}"},
        "defaultConfiguration": {"level": rule.severity.sarif_level},
        "properties": {"severity": rule.severity.label, "tags": list(rule.tags)},
    }


def _result(issue: Issue, index: Mapping[str, int]) -> Json:
    result: Json = {
        "ruleId": inline(issue.rule),
        "ruleIndex": index[inline(issue.rule)],
        "level": issue.severity.sarif_level,
        "message": {"text": _message(issue)},
        "partialFingerprints": {FINGERPRINT: issue.fingerprint},
        "occurrenceCount": max(1, issue.count),
        "properties": _properties(issue),
    }
    if issue.where is not None and (place := _location(issue.where)):
        result["locations"] = [place]
    return result


def _message(issue: Issue) -> str:
    # a brace or a bracket would start a placeholder or a link in a plain-text message
    text = inline(issue.message) or inline(issue.name) or inline(issue.rule)
    return re.sub(r"([\[\]\\])", r"\\\1", text).replace("{", "{{").replace("}", "}}")


def _allowed(entry: AllowedIssue, index: Mapping[str, int]) -> Json:
    justified = {"kind": "external", "justification": inline(entry.reason)}
    return {**_result(entry.issue, index), "suppressions": [justified]}


def _location(where: Location) -> Json:
    place: Json = {}
    if where.file:
        physical: Json = {"artifactLocation": {"uri": _uri(where.file)}}
        if where.line is not None and where.line >= 1:
            physical["region"] = {"startLine": where.line}
        place["physicalLocation"] = physical
    logical: list[Json] = [
        {"name": inline(name), "fullyQualifiedName": inline(name), "kind": kind}
        for kind, name in (
            ("module", where.module),
            ("member", where.parameter),
            ("function", where.function),
            ("function", where.op),
        )
        if name
    ]
    if logical:
        place["logicalLocations"] = _unique(logical)
    return place


def _unique(entries: Iterable[Json]) -> list[Json]:
    """Return the entries without repetition: the standard wants sets."""
    found: list[Json] = []
    for entry in entries:
        if entry not in found:
            found.append(entry)
    return found


def _uri(path: str) -> str:
    """Return a relative reference: no name of a file can become a link with a scheme."""
    return quote(inline(path).replace("\\", "/"), safe="/~@!$&'()*+,;=-._")


def _properties(issue: Issue) -> Json:
    numbers: Json = {}
    for name, value in issue.evidence.items():
        if isinstance(value, Quantity):
            numbers[inline(name)] = value.to_dict()
        elif isinstance(value, float):
            numbers[inline(name)] = json_number(value)
        else:
            numbers[inline(name)] = inline(value) if isinstance(value, str) else value
    found: Json = {
        "severity": issue.severity.label,
        "confidence": json_number(issue.confidence),
        "evidence": numbers,
        "suggestion": inline(issue.suggestion),
        "limitation": inline(issue.limitation),
    }
    if issue.step is not None:
        found["step"], found["lastStep"] = issue.step, issue.last_step
    if issue.where is not None and issue.where.rank is not None:
        found["rank"] = issue.where.rank
    if issue.where is not None and issue.where.sample is not None:
        found["sample"] = issue.where.sample
    return found


def _invocation(report: Report) -> Json:
    found: Json = {
        "executionSuccessful": True,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": _unique(map(_problem, report.problems)),
        "toolConfigurationNotifications": _unique(_undecided(report.not_evaluated)),
    }
    if report.run.command:
        found["commandLine"] = inline(report.run.command)
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\+00:00|Z)", report.run.started_utc):
        found["startTimeUtc"] = report.run.started_utc.replace("+00:00", "Z")
    return found


def _problem(problem: Problem) -> Json:
    return {
        "descriptor": {"id": inline(problem.rule) or "NAB"},
        "level": "warning",
        "message": {"text": inline(f"{problem.plugin}: {problem.message} {problem.hint}")},
    }


def _undecided(entries: Iterable[NotEvaluated]) -> Iterable[Json]:
    for entry in entries:
        yield {
            "associatedRule": {"id": inline(entry.rule) or "unknown"},
            "level": "note",
            "message": {"text": inline(f"not evaluated: {entry.reason}")},
        }

"""The report as JUnit XML: for the test page of every CI service.

Each issue is a test case that fails at or above the severity that fails the run, each rule that
found nothing one that passes, and each rule that could not be decided one that is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from nabla_core.issue import Issue
from nabla_core.report import Report
from nabla_core.reporters.style import Style

from .redacting import redacted
from .text import evidence_rows, inline, place, steps, worst_first

__all__ = ["render"]

Outcome = Literal["failure", "error", "skipped", "passed"]

_OF_ALL: Mapping[Outcome, str] = {"failure": "failures", "error": "errors"}
_OF_ONE: Mapping[Outcome, str] = {**_OF_ALL, "skipped": "skipped"}
"""The counts that the schema of Jenkins allows; file and line of a case it does not allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One test case."""

    suite: str
    name: str
    outcome: Outcome = "passed"
    kind: str = ""
    message: str = ""
    detail: str = ""

    def xml(self) -> str:
        attributes = [f"name={_quoted(self.name)}", f"classname={_quoted(f'nabla.{self.suite}')}"]
        head = f'    <testcase {" ".join(attributes)} time="0"'
        if self.outcome == "passed" and not self.detail:
            return f"{head}/>"
        return f"{head}>\n{self._inside()}\n    </testcase>"

    def _inside(self) -> str:
        if self.outcome == "passed":
            return f"      <system-out>{_escaped(self.detail)}</system-out>"
        if self.outcome == "skipped":
            return f"      <skipped message={_quoted(self.message)}/>"
        attributes = f"message={_quoted(self.message)} type={_quoted(self.kind)}"
        return f"      <{self.outcome} {attributes}>{_escaped(self.detail)}</{self.outcome}>"


def render(report: Report, style: Style) -> str:
    """Return the report as JUnit XML."""
    del style  # read by a machine
    shown = redacted(report)
    suites: dict[str, list[_Case]] = {}
    for case in _cases(shown):
        suites.setdefault(case.suite, []).append(case)
    seconds = f"{max(0.0, shown.run.duration_s):.3f}"
    everything = [case for cases in suites.values() for case in cases]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="nabla" {_counts(everything, _OF_ALL)} time="{seconds}">',
    ]
    for name, cases in sorted(suites.items()):
        lines.append(f'  <testsuite name={_quoted(name)} {_counts(cases, _OF_ONE)} time="0">')
        lines += [case.xml() for case in cases]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _cases(report: Report) -> Iterator[_Case]:
    found = {issue.rule for issue in report.issues}
    for issue in worst_first(report):
        yield _issue(issue, issue.severity >= report.fail_on)
    for rule in report.rules_used:
        if rule not in found:
            yield _Case(suite=_suite(rule), name=rule)
    for entry in report.not_evaluated:
        reason = inline(f"not evaluated: {entry.reason}")
        yield _Case(suite=_suite(entry.rule), name=entry.rule, outcome="skipped", message=reason)
    for entry_allowed in report.allowed:
        issue = entry_allowed.issue
        reason = inline(f"allowed ({entry_allowed.source}): {entry_allowed.reason}")
        yield _Case(suite=_suite(issue.rule), name=_title(issue), outcome="skipped", message=reason)
    for problem in report.problems:
        yield _Case(
            suite=_suite(problem.rule),
            name=f"{problem.rule} {problem.plugin}",
            outcome="error",
            kind=problem.rule,
            message=problem.message,
            detail=inline(problem.hint),
        )


def _issue(issue: Issue, fails: bool) -> _Case:
    return _Case(
        suite=_suite(issue.rule),
        name=_title(issue),
        outcome="failure" if fails else "passed",
        kind=f"{issue.severity.label} {issue.rule}",
        message=issue.message,
        detail="\n".join(_details(issue)),
    )


def _details(issue: Issue) -> Iterator[str]:
    yield inline(f"{issue.severity.label}: {issue.message}")
    if when := steps(issue):
        yield f"when: {when}"
    for name, value, limit in evidence_rows(issue.evidence):
        yield f"measured: {name} = {value}" + (f" (limit {limit})" if limit else "")
    yield inline(f"try: {issue.suggestion}")
    yield inline(f"not shown: {issue.limitation}")


def _title(issue: Issue) -> str:
    return inline(f"{issue.rule} {issue.name} {place(issue)}")


def _suite(rule: str) -> str:
    return rule.rstrip("0123456789") or "nabla"


def _counts(cases: list[_Case], outcomes: Mapping[Outcome, str]) -> str:
    found = [case.outcome for case in cases]
    numbers = [f'{name}="{found.count(outcome)}"' for outcome, name in outcomes.items()]
    return " ".join([f'tests="{len(cases)}"', *numbers])


def _quoted(text: str) -> str:
    return quoteattr(inline(text))


def _escaped(text: str) -> str:
    return "\n".join(escape(inline(line)) for line in text.split("\n"))

"""Text of a report that holds no control characters, and the words that every format shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nabla_core.issue import Evidence, Issue, Quantity
from nabla_core.report import Report
from nabla_core.reporters.style import counted, printable

__all__ = ["evidence_rows", "inline", "place", "steps", "value_text", "verdict", "worst_first"]


def inline(text: str) -> str:
    """Return ``text`` in one line, without characters that steer a reader or that XML forbids."""
    return " ".join(printable(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd").split())


def value_text(value: float | int | str | bool) -> str:
    """Return a scalar as a person reads it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return inline(str(value))


def evidence_rows(evidence: Mapping[str, Evidence]) -> Iterator[tuple[str, str, str]]:
    """Yield name, measured value and limit of each piece of evidence that says anything."""
    for name, value in evidence.items():
        if isinstance(value, Quantity):
            measured = f"{value.value:.6g}{' ' + value.unit if value.unit else ''}"
            limit = "" if value.limit is None else f"{value.limit:.6g}"
            yield inline(name), inline(measured), limit
        elif value != "":
            yield inline(name), value_text(value), ""


def place(issue: Issue) -> str:
    """Return where an issue is, or an empty text."""
    return inline(str(issue.where)) if issue.where is not None else ""


def steps(issue: Issue) -> str:
    """Return when an issue was seen, or an empty text."""
    if issue.step is None:
        return f"{issue.count} times" if issue.count > 1 else ""
    last = issue.step if issue.last_step is None else issue.last_step
    if last == issue.step:
        return f"step {issue.step}"
    return f"steps {issue.step} to {last}, {issue.count} times"


def worst_first(report: Report) -> list[Issue]:
    """Return the issues, the worst first, else in the order of their steps."""
    return sorted(report.issues, key=lambda issue: -issue.severity)


def verdict(report: Report) -> str:
    """Return the verdict in one line."""
    rules = f"{counted(len(report.rules_used), 'rule')} evaluated"
    if not report.rules_used and not report.issues:
        return "Nothing was checked"
    if not report.issues:
        return f"No issues; {rules}"
    found = ", ".join(f"{number} {label}" for label, number in report.counts.items())
    return f"{counted(len(report.issues), 'issue')}: {found}; {rules}"

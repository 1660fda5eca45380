"""Annotations of GitHub Actions, one workflow command per issue."""

from __future__ import annotations

from collections import Counter

from ..issue import Issue
from ..redaction import redact
from ..report import Report
from .style import Style, printable

__all__ = ["render"]

_PER_LEVEL = 10
"""GitHub shows ten annotations of a level per step; the rest is counted in a notice."""


def render(report: Report, style: Style) -> str:
    """Return one workflow command per issue, the worst first."""
    del style  # read by a machine
    lines, shown, hidden = [], Counter[str](), 0
    for issue in sorted(report.issues, key=lambda found: -found.severity):
        level = issue.severity.github_level
        shown[level] += 1
        if shown[level] > _PER_LEVEL:
            hidden += 1
        else:
            lines.append(_command(issue, level))
    if hidden:
        lines.append(f"::notice title=nabla::{hidden} more issues are in the full report")
    return "\n".join(lines) + ("\n" if lines else "")


def _command(issue: Issue, level: str) -> str:
    properties = {"title": f"{issue.rule} {issue.name}"}
    if issue.where is not None and issue.where.file:
        properties["file"] = issue.where.file
        if issue.where.line:
            properties["line"] = str(issue.where.line)
    shown = ",".join(
        f"{name}={_property(printable(redact(text)))}" for name, text in properties.items()
    )
    message = issue.message if issue.where is None else f"{issue.message} ({issue.where})"
    return f"::{level} {shown}::{_message(printable(redact(f'{message} Try: {issue.suggestion}')))}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")

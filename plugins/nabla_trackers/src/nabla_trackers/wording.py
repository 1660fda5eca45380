"""What trackers show of an issue. Names come from the program that is watched: none is trusted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nabla_core.reporters.style import printable
from nabla_core.severity import Severity

if TYPE_CHECKING:
    from nabla_core.issue import Issue
    from nabla_core.report import Report

__all__ = ["COLUMNS", "clipped", "heading", "row", "safe_key", "story", "verdict"]

COLUMNS = ("rule", "name", "severity", "step", "last_step", "count", "where", "message", "fix")
"""Columns of a table of issues."""

_MOST_CHARACTERS = 2_000
_MOST_KEY_CHARACTERS = 120
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_. /-]|\.{2,}")


def clipped(text: str, limit: int = _MOST_CHARACTERS) -> str:
    """Return ``text`` without control characters and of at most ``limit`` characters."""
    plain = printable(text)
    return plain if len(plain) <= limit else plain[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def safe_key(name: str) -> str:
    """Return ``name`` as every tracker takes it: a path of plain characters, none of it dots."""
    parts = [_NOT_IN_KEYS.sub("_", part).strip() for part in name.split("/")]
    kept = "/".join(part if part.strip(".") else "_" for part in parts)
    return kept[:_MOST_KEY_CHARACTERS].rstrip("/. ") or "_"


def heading(issue: Issue) -> str:
    """Return one line that names the rule."""
    return clipped(f"{issue.rule} {issue.name} ({issue.severity.label})", 200)


def story(issue: Issue) -> str:
    """Return what was found, where, and what to try, one thing a line."""
    step = "" if issue.step is None else f"step {issue.step}"
    place = "" if issue.where is None else str(issue.where)
    lines = (
        issue.message,
        ", ".join(part for part in (step, place) if part),
        f"try: {issue.suggestion}" if issue.suggestion else "",
        f"limits: {issue.limitation}" if issue.limitation else "",
    )
    return clipped("\n".join(line for line in lines if line))


def row(issue: Issue) -> list[str | int | None]:
    """Return the cells of an issue, in the order of :data:`COLUMNS`."""
    return [
        issue.rule,
        issue.name,
        issue.severity.label,
        issue.step,
        issue.last_step,
        issue.count,
        "" if issue.where is None else clipped(str(issue.where)),
        clipped(issue.message),
        clipped(issue.suggestion),
    ]


def verdict(report: Report) -> str:
    """Return the outcome in one line: how many issues of which severity over how many steps."""
    found = ", ".join(f"{number} {label}" for label, number in report.counts.items())
    outcome = "passed" if report.passed else "failed"
    told = [cause.statement for cause in report.causes[:1]]
    worst = [issue.message for issue in report.issues if issue.severity > Severity.INFO][:1]
    return clipped(
        " ".join(
            [f"{outcome}: {found or 'no issues'} in {report.run.steps} steps.", *(told or worst)]
        )
    )

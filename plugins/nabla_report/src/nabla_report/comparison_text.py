"""A comparison for people: on a terminal, as Markdown, and as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from nabla_core.issue import Issue
from nabla_core.reporters.console import issue_lines
from nabla_core.reporters.style import Style, without_commands

from .comparing import Comparison
from .markdown_text import code, plain, row
from .text import inline, place, steps

__all__ = ["FORMATS", "console", "html", "json_text", "markdown"]


def console(comparison: Comparison, style: Style) -> str:
    """Return what is new in full, and the rest in a line each."""
    lines = []
    for title, issues in _groups(comparison):
        if not issues:
            continue
        lines.append(style.paint(f"{title} ({len(issues)})", "bold"))
        if title == "new":
            for issue in issues:
                lines += [f"  {line}" for line in issue_lines(issue, style)]
        else:
            lines += [f"  {_short(issue)}" for issue in issues]
        lines.append("")
    for change in comparison.changed:
        moved = f"{change.old.label} to {change.issue.severity.label}"
        lines += [f"changed severity, {moved}: {_short(change.issue)}", ""]
    lines += [
        inline(f"first evaluated in the new report: {rule}") for rule in comparison.first_evaluated
    ]
    summary = _summary(comparison)
    lines.append(summary if comparison.passed else style.paint(summary, "high"))
    return without_commands("\n".join(lines) + "\n")


def markdown(comparison: Comparison, style: Style) -> str:
    """Return the comparison as Markdown."""
    del style  # the same for every reader
    lines = [f"## nabla: {plain(_summary(comparison))}", ""]
    rows = [
        row(title, issue.severity.label, code(f"{issue.rule} {issue.name}"), *_cells(issue))
        for title, issues in _groups(comparison)
        for issue in issues
        if title != "unchanged"
    ]
    rows += [
        row(
            "changed",
            f"{change.old.label} to {change.issue.severity.label}",
            code(f"{change.issue.rule} {change.issue.name}"),
            *_cells(change.issue),
        )
        for change in comparison.changed
    ]
    if rows:
        lines += [row("", "severity", "rule", "where", "message"), row(*["---"] * 5), *rows, ""]
    lines += [
        f"- first evaluated in the new report: {code(rule)}" for rule in comparison.first_evaluated
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def html(comparison: Comparison, style: Style) -> str:
    """Return the comparison as one self-contained page."""
    from .page.changes import changes_page

    del style  # the page follows the reader's settings
    return changes_page(comparison, _summary(comparison))


def json_text(comparison: Comparison, style: Style) -> str:
    """Return the comparison as strict JSON."""
    del style  # read by a machine
    text = json.dumps(comparison.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


FORMATS: Mapping[str, Callable[[Comparison, Style], str]] = {
    "console": console,
    "html": html,
    "json": json_text,
    "markdown": markdown,
}
"""Formats of ``nabla compare``."""


def _groups(comparison: Comparison) -> Iterator[tuple[str, tuple[Issue, ...]]]:
    yield "new", comparison.new
    yield "fixed", comparison.fixed
    yield "allowed now", comparison.allowed
    yield "not decided any more", comparison.undecided
    yield "unchanged", comparison.unchanged


def _summary(comparison: Comparison) -> str:
    parts = [f"{len(issues)} {title}" for title, issues in _groups(comparison)]
    parts.insert(2, f"{len(comparison.changed)} changed severity")
    failing = len(comparison.failures)
    limit = comparison.fail_on.label
    verdict = "no new issue" if not failing else f"{failing} new issue{'s' if failing > 1 else ''}"
    return f"{verdict} at or above {limit} ({', '.join(parts)})"


def _short(issue: Issue) -> str:
    where = ", ".join(part for part in (place(issue), steps(issue)) if part)
    return inline(f"{issue.severity.label} {issue.rule} {issue.name} {where}")


def _cells(issue: Issue) -> tuple[str, str]:
    return plain(place(issue)), plain(issue.message)

"""The report for a person: the verdict first, then its numbers, then what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from ..issue import Issue, Quantity
from ..report import Report
from ..result import ResultMixin
from ..severity import Severity
from .style import Style, counted, printable, without_commands

__all__ = ["issue_lines", "one_line", "render", "render_result"]

_LABEL_WIDTH = 11
_FEW_REASONS = 2


def render(report: Report, style: Style) -> str:
    """Return the whole report as text."""
    lines = [_headline(report, style), ""]
    for issue in sorted(report.issues, key=lambda found: -found.severity):
        lines += [*issue_lines(issue, style), ""]
    for cause in report.causes:
        lines += [style.paint("Cause: ", "bold") + printable(cause.statement), ""]
    for section in report.sections:
        if not section.lines:
            continue  # plots alone: nothing that text can show
        lines += [style.paint(printable(section.title), "bold")]
        lines += [printable(line) for line in section.lines] + [""]
    lines += _accepted(report)
    lines += _undecided(report, style)
    lines.append(_summary(report, style))
    return without_commands("\n".join(lines) + "\n")


def render_result(result: ResultMixin) -> str:
    """Return the plain text of any result."""
    if isinstance(result, Report):
        return render(result, Style())
    lines = [line for issue in result.issues for line in (*issue_lines(issue, Style()), "")]
    return without_commands("\n".join([*lines, "passed" if result.passed else "failed"]))


def one_line(issue: Issue) -> str:
    """Return the line that is shown while a run goes on."""
    step = "" if issue.step is None else f" at step {issue.step}"
    return printable(f"{issue.rule} {issue.name}{step}: {issue.message}").replace("\n", " ")


def issue_lines(issue: Issue, style: Style) -> Iterator[str]:
    """Yield the lines of one issue."""
    title = style.paint(printable(f"{issue.rule} {issue.name}"), "bold")
    place = ", ".join(part for part in (str(issue.where or ""), _steps(issue)) if part)
    yield f"{style.severity(issue.severity)} {title}  {printable(place)}".rstrip()
    yield from _wrap("", printable(issue.message), style)
    if issue.severity > Severity.INFO or style.verbose:
        yield from _proof(issue, style)
    yield from _wrap("more", printable(f"nabla rule {issue.rule}"), style)


def _proof(issue: Issue, style: Style) -> Iterator[str]:
    """Yield the numbers, what to try, and what is not shown; of plain information only with -v."""
    if issue.evidence:
        shown = "; ".join(f"{name} = {_value(value)}" for name, value in issue.evidence.items())
        yield from _wrap("measured", printable(shown), style)
    yield from _wrap("try", printable(issue.suggestion), style)
    yield from _wrap("not shown", printable(issue.limitation), style)
    if issue.reproduction is not None and issue.reproduction.command:
        yield from _wrap("see again", printable(issue.reproduction.command), style)
    if issue.artifact:
        yield from _wrap("stored", printable(issue.artifact), style)


def _wrap(label: str, text: str, style: Style) -> Iterator[str]:
    if not text:
        return
    indent = " " * (_LABEL_WIDTH + 2)
    head = f"  {label:<{_LABEL_WIDTH}}" if label else "  "
    lines: list[str] = []
    for number, paragraph in enumerate(text.splitlines()):
        lines += textwrap.wrap(
            paragraph,
            width=style.width,
            initial_indent=(head if number == 0 else (indent if label else "  ")),
            subsequent_indent=indent if label else "  ",
            break_long_words=False,
        )
    for line in lines:
        yield style.paint(line, "dim") if label in ("not shown", "more") else line


def _steps(issue: Issue) -> str:
    if issue.step is None:
        return f"{issue.count} times" if issue.count > 1 else ""
    last = issue.step if issue.last_step is None else issue.last_step
    if issue.count == 1 or last == issue.step:
        return f"step {issue.step}"
    return f"steps {issue.step} to {last} ({issue.count} times)"


def _value(value: object) -> str:
    if isinstance(value, (bool, Quantity, str)):
        return str(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _headline(report: Report, style: Style) -> str:
    run = report.run
    version = printable(run.versions.get("nabla-core", ""))
    parts = [f"nabla {version}".strip(), printable(run.command)]
    if run.steps:
        parts.append(counted(run.steps, "optimizer step"))
    if run.duration_s:
        parts.append(f"{run.duration_s:.1f} s")
    return style.paint(" · ".join(part for part in parts if part), "bold")


def _accepted(report: Report) -> Iterable[str]:
    lines = [
        printable(
            f"allowed ({entry.source}): {entry.issue.rule} {entry.issue.name}"
            f" {entry.issue.where or ''} – {entry.reason}"
        )
        for entry in report.allowed
    ]
    lines += [
        printable(f"no longer seen, remove from the baseline: {line}")
        for line in report.stale_baseline
    ]
    return [*lines, ""] if lines else []


def _undecided(report: Report, style: Style) -> Iterable[str]:
    if not report.not_evaluated:
        return []
    by_reason: dict[str, list[str]] = {}
    for entry in report.not_evaluated:
        by_reason.setdefault(entry.reason, []).append(entry.rule)
    shown = len(by_reason) if style.verbose else _FEW_REASONS
    lines: list[str] = []
    for reason, rules in list(by_reason.items())[:shown]:
        lines += _wrap("", printable(f"not evaluated: {', '.join(rules)} – {reason}"), style)
    hidden = sum(len(rules) for rules in list(by_reason.values())[shown:])
    if hidden:
        lines.append(f"not evaluated: {counted(hidden, 'more rule')} (nabla -v … names them)")
    return [*(style.paint(line.strip(), "dim") for line in lines), ""]


def _summary(report: Report, style: Style) -> str:
    found = ", ".join(f"{number} {label}" for label, number in report.counts.items())
    rules = f"{counted(len(report.rules_used), 'rule')} evaluated"
    if not report.rules_used:
        return style.paint("nothing was checked", "medium")
    if not found:
        return style.paint(f"no issues; {rules}", "good")
    total = len(report.issues)
    text = f"{counted(total, 'issue')} ({found}); {rules}"
    return text if report.passed else style.paint(text, "high")

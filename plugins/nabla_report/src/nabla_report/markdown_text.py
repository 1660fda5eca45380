"""The report as Markdown: for the step summary of a CI job, or a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue
from nabla_core.report import Cause, Report
from nabla_core.reporters.style import Style, counted, without_commands

from .redacting import redacted
from .text import evidence_rows, inline, place, steps, verdict, worst_first

__all__ = ["code", "plain", "render", "row"]

_MOST_ISSUES = 50
"""Told in full; the rest is counted, because GitHub cuts a step summary at 1 MiB."""

# the colons are those of addresses and of the names of emoji
_MARKS = re.compile(r"[\\`*_{}\[\]<>#|~$&]|:(?=//|[\w+-]+:)")
_LINK = re.compile(r"(?i)\b(www)\.")


def render(report: Report, style: Style) -> str:
    """Return the report as Markdown."""
    del style  # the same for every reader
    shown = redacted(report)
    issues = worst_first(shown)
    lines = [f"## nabla: {plain(verdict(shown))}", ""]
    if shown.run.command:
        steps_seen = f" · {counted(shown.run.steps, 'optimizer step')}" if shown.run.steps else ""
        lines += [code(shown.run.command) + steps_seen, ""]
    lines += _causes(shown.causes, issues)
    if issues:
        lines += [row("severity", "rule", "where", "message"), row(*["---"] * 4)]
        lines += [_line(issue) for issue in issues[:_MOST_ISSUES]] + [""]
    for issue in issues[:_MOST_ISSUES]:
        lines += _details(issue)
    if len(issues) > _MOST_ISSUES:
        lines += [f"{len(issues) - _MOST_ISSUES} more issues are in the full report.", ""]
    lines += _footer(shown)
    return without_commands("\n".join(lines).rstrip("\n") + "\n")


def plain(text: str) -> str:
    """Return ``text`` so that Markdown shows it and does nothing else: no link, mark or mention."""
    escaped = _MARKS.sub(lambda match: f"&#{ord(match.group())};", inline(text))
    escaped = _LINK.sub(r"\1&#46;", escaped)
    return escaped.replace("@", "@\u2060")  # a mention needs the name right after the sign


def code(text: str) -> str:
    """Return ``text`` as a code span; one with a pipe or a backtick as plain text."""
    shown = inline(text)
    if not shown:
        return ""
    return plain(shown) if {"`", "|", "\\"} & set(shown) else f"`{shown}`"


def row(*cells: str) -> str:
    """Return a row of a table; the cells are Markdown already."""
    return f"| {' | '.join(cells)} |"


def _causes(causes: Iterable[Cause], issues: list[Issue]) -> Iterator[str]:
    by_fingerprint = {issue.fingerprint: issue for issue in issues}
    for cause in causes:
        yield f"**Cause:** {plain(cause.statement)}"
        yield ""
        links = [by_fingerprint[link] for link in cause.chain if link in by_fingerprint]
        for number, issue in enumerate(links, start=1):
            when = f" ({steps(issue)})" if steps(issue) else ""
            yield f"{number}. {code(issue.rule)} {plain(issue.message)}{when}"
        for title, sentences in (
            ("speaks for it", cause.supports),
            ("speaks against it", cause.contradicts),
            ("would confirm it", cause.tests),
        ):
            yield from (f"- {title}: {plain(sentence)}" for sentence in sentences)
        yield ""


def _line(issue: Issue) -> str:
    where = ", ".join(part for part in (place(issue), steps(issue)) if part)
    rule = code(f"{issue.rule} {issue.name}")
    return row(issue.severity.label, rule, plain(where), plain(issue.message))


def _details(issue: Issue) -> Iterator[str]:
    yield "<details>"
    yield f"<summary>{plain(f'{issue.rule} {issue.name} {place(issue)}'.strip())}</summary>"
    yield ""
    rows = list(evidence_rows(issue.evidence))
    if rows:
        yield row("measured", "value", "limit")
        yield row("---", "---", "---")
        yield from (row(code(name), plain(value), limit) for name, value, limit in rows)
        yield ""
    yield f"**Try:** {plain(issue.suggestion)}"
    yield ""
    yield f"**Not shown:** {plain(issue.limitation)}"
    yield ""
    yield "</details>"
    yield ""


def _footer(report: Report) -> Iterator[str]:
    for section in report.sections:
        if section.lines:
            yield f"**{plain(section.title)}**"
            yield ""
            yield from (f"    {inline(line)}" for line in section.lines)
            yield ""
    for entry in report.allowed:
        yield f"- allowed: {code(entry.issue.rule)} {plain(f'{place(entry.issue)} {entry.reason}')}"
    if report.not_evaluated:
        rules = ", ".join(code(entry.rule) for entry in report.not_evaluated)
        yield f"- not evaluated: {rules}"
    for problem in report.problems:
        yield f"- problem: {code(problem.rule)} {plain(f'{problem.plugin}: {problem.message}')}"

"""Lines of a result that a person reads: a verdict, and how a text fits the screen."""

from __future__ import annotations

import textwrap

from nabla_core.issue import Issue

__all__ = ["MOST_LINES", "cut", "issue_lines", "shorten", "wrap"]

MOST_LINES = 25

_WIDTH = 100


def issue_lines(issue: Issue) -> list[str]:
    """Return what is wrong, why as far as the message does not say, and where to look."""
    lines = wrap(f"{issue.rule} {issue.name}: {issue.message}")
    for label in ("cause", "setting"):
        text = str(issue.evidence.get(label, ""))
        if text and text not in issue.message:
            lines.append(shorten(f"    {label}: {text}"))
    lines.append(shorten(f"    fix: {issue.suggestion}"))
    return lines


def wrap(text: str, indent: str = "    ") -> list[str]:
    """Return ``text`` in lines; all but the first are indented."""
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent)


def shorten(text: str) -> str:
    """Return ``text`` in one line that is not much longer than the screen is wide."""
    indent = text[: len(text) - len(text.lstrip())]
    return indent + textwrap.shorten(text, _WIDTH + 60, placeholder=" …")


def cut(lines: list[str]) -> str:
    """Join at most :data:`MOST_LINES` lines and say how many are hidden."""
    if len(lines) > MOST_LINES:
        hidden = len(lines) - MOST_LINES + 1
        lines = [*lines[: MOST_LINES - 1], f"… {hidden} more lines in to_dict()"]
    return "\n".join(lines)

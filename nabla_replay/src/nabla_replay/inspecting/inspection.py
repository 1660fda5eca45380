"""The result of looking at a path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nabla_core.issue import Issue
from nabla_core.reporters.console import issue_lines
from nabla_core.reporters.style import Style, printable
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from ..wording import amount

__all__ = ["Fact", "Inspection", "Kind", "size_text"]

Kind: TypeAlias = Literal[
    "captured run", "failure artifact", "state file", "safetensors file", "foreign file"
]
"""What a path can be."""

Fact: TypeAlias = tuple[str, str]
"""A name and what is known under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection(ResultMixin):
    """What a path holds.

    Attributes:
        path: as it was given.
        kind: what it is.
        facts: what it holds.
        issues: what is wrong with it.
        fail_on: severity from which it does not pass.
    """

    path: str
    kind: Kind
    facts: tuple[Fact, ...]
    issues: tuple[Issue, ...] = ()
    fail_on: Severity = Severity.MEDIUM

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "path": self.path,
            "kind": self.kind,
            "facts": dict(self.facts),
            "passed": self.passed,
            "issues": [issue.to_dict() for issue in self.issues],
        }

    def format(self) -> str:
        """Return the facts, the issues, and whether it is intact."""
        lines = [f"{self.kind}  {printable(self.path)}"]
        width = max((len(name) for name, _ in self.facts), default=0) + 2
        lines += [f"  {name:<{width}}{_one_line(text)}" for name, text in self.facts]
        for issue in self.issues:
            lines += ["", *issue_lines(issue, Style())]
        return "\n".join([*lines, "", self._verdict()])

    def _verdict(self) -> str:
        if self.kind == "foreign file":
            return "not opened"
        if self.passed:
            return "intact" if self.kind in ("captured run", "failure artifact") else "well formed"
        return f"not intact: {amount(len(self.failures), 'issue')}"


def size_text(size_bytes: int) -> str:
    """Return a size for people."""
    size, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")

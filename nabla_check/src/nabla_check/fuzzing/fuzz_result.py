"""The outcome of a fuzzing campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nabla_core.issue import Issue
from nabla_core.report import AllowedIssue
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from ..wording.lines import cut, issue_lines, shorten, wrap
from .recipe import Case

__all__ = ["FuzzResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzResult(ResultMixin):
    """How many cases were tried, the smallest that fails, and why it does.

    Attributes:
        candidate: name of the operator.
        issues: the verdicts about the smallest failing case, and notes.
        seed: reproduces the whole campaign.
        trials: cases that were compared.
        requested: cases that were asked for.
        skipped: how many cases could not be compared, by reason.
        minimum: the smallest failing case.
        failing: the failing case as it was found.
        shrink_calls: cases tried to make it smaller.
        setting: the smallest failing case in one line.
        artifact: folder with the evidence.
        allowed: issues accepted by ``nabla.allow`` or a baseline.
        fail_on: severity from which an issue fails the campaign.
    """

    candidate: str
    issues: tuple[Issue, ...]
    seed: int
    trials: int
    requested: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    minimum: Case | None = None
    failing: Case | None = None
    shrink_calls: int = 0
    setting: str = ""
    artifact: str | None = None
    allowed: tuple[AllowedIssue, ...] = ()
    fail_on: Severity = Severity.LOW

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "candidate": self.candidate,
            "seed": self.seed,
            "trials": self.trials,
            "requested": self.requested,
            "skipped": dict(self.skipped),
            "minimum": self.minimum.to_dict() if self.minimum else None,
            "failing": self.failing.to_dict() if self.failing else None,
            "shrink_calls": self.shrink_calls,
            "setting": self.setting,
            "artifact": self.artifact,
            "issues": [issue.to_dict() for issue in self.issues],
            "allowed": [entry.to_dict() for entry in self.allowed],
        }

    def format(self) -> str:
        """Return the verdict in at most 25 lines, without colour."""
        lines = [self._headline()]
        if self.setting:
            shrunk = f"{self.shrink_calls} calls to shrink"
            lines += wrap(f"smallest failing case: {self.setting} ({shrunk})", "  ")
        for issue in self.failures:
            lines += issue_lines(issue)
        notes = [issue for issue in self.issues if issue not in self.failures]
        lines += [shorten(f"note {note.rule}: {note.message}") for note in notes]
        lines += [shorten(f"allowed {entry.issue.rule}: {entry.reason}") for entry in self.allowed]
        lines += [shorten(f"{count} skipped: {why}") for why, count in self.skipped.items()]
        if self.artifact:
            lines.append(f"evidence and script: {self.artifact}")
        return cut(lines)

    def _headline(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        if self.passed and not self.trials:
            verdict = "nothing was compared"
        return f"{self.candidate}: {verdict} ({self.trials} trials, seed {self.seed})"

"""The outcome of checking one operator."""

from __future__ import annotations

from dataclasses import dataclass

from nabla_core.issue import Issue
from nabla_core.report import AllowedIssue, NotEvaluated
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .wording.lines import cut, issue_lines, shorten

__all__ = ["CheckResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(ResultMixin):
    """What was checked, what is wrong, and what could not be decided.

    Attributes:
        candidate: name of the operator.
        issues: the verdicts, causes before their consequences.
        seed: reproduces every random number of the check.
        level: ``first-order`` or ``full``.
        checks: names of the checks that were decided.
        not_evaluated: rules that could not be decided, with the reason.
        allowed: issues accepted by ``nabla.allow`` or a baseline.
        forward_calls: calls of the candidate.
        backward_calls: backward passes through the candidate.
        fail_on: severity from which an issue fails the check.
    """

    candidate: str
    issues: tuple[Issue, ...]
    seed: int
    level: str
    checks: tuple[str, ...]
    not_evaluated: tuple[NotEvaluated, ...] = ()
    allowed: tuple[AllowedIssue, ...] = ()
    forward_calls: int = 0
    backward_calls: int = 0
    fail_on: Severity = Severity.LOW

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "candidate": self.candidate,
            "seed": self.seed,
            "level": self.level,
            "issues": [issue.to_dict() for issue in self.issues],
            "checks": list(self.checks),
            "not_evaluated": [entry.to_dict() for entry in self.not_evaluated],
            "allowed": [entry.to_dict() for entry in self.allowed],
            "forward_calls": self.forward_calls,
            "backward_calls": self.backward_calls,
        }

    def format(self) -> str:
        """Return the verdict in at most 25 lines, without colour."""
        lines = [self._headline()]
        for issue in self.failures:
            lines += issue_lines(issue)
        notes = [issue for issue in self.issues if issue not in self.failures]
        lines += [shorten(f"note {note.rule}: {note.message}") for note in notes]
        lines += [shorten(f"allowed {x.issue.rule}: {x.reason}") for x in self.allowed]
        if self.not_evaluated:
            reasons = "; ".join(f"{entry.rule} ({entry.reason})" for entry in self.not_evaluated)
            lines.append(shorten(f"not evaluated: {reasons}"))
        return cut(lines)

    def _headline(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        return (
            f"{self.candidate}: {verdict} ({self.level}, seed {self.seed}, "
            f"{len(self.checks)} checks, {self.forward_calls} forward and "
            f"{self.backward_calls} backward calls)"
        )

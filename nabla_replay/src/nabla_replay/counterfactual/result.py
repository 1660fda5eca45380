"""What counterfactual replays showed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nabla_core.issue import Issue
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .changes import Change
from .symptoms import Outcome, Symptom

__all__ = ["Trial", "WhatIf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The same steps with one thing changed.

    Attributes:
        change: what was changed.
        outcome: the symptom vanishes, it stays, or that cannot be told.
        reason: one clause, with the numbers.
        value: largest magnitude of the symptom's measure after the change; NaN where unknown.
        steps: steps that were executed.
    """

    change: Change
    outcome: Outcome
    reason: str
    value: float
    steps: int

    def __str__(self) -> str:
        words = {
            "vanishes": "the symptom vanishes",
            "stays": "the symptom stays",
            "undecided": "undecided",
        }
        return f"with {self.change}: {words[self.outcome]} ({self.reason})"

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "change": str(self.change),
            "kind": type(self.change).__name__,
            "outcome": self.outcome,
            "reason": self.reason,
            "value": f"{self.value:g}",
            "steps": self.steps,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf(ResultMixin):
    """The outcome of all changes. It judges nobody: it always passes.

    Attributes:
        run: folder of the run.
        symptom: what the unchanged steps show; ``None`` when nothing goes wrong in them.
        trials: one for each change, in the order in which they were given.
        first: first step that was executed, at a checkpoint.
        last: last step that was executed.
        cautions: what stands in the way of believing it.
    """

    run: Path
    symptom: Symptom | None
    trials: tuple[Trial, ...]
    first: int
    last: int
    cautions: tuple[str, ...] = ()
    issues: tuple[Issue, ...] = ()
    fail_on: Severity = Severity.HIGH

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "run": str(self.run),
            "symptom": None if self.symptom is None else str(self.symptom),
            "trials": [trial.to_dict() for trial in self.trials],
            "first": self.first,
            "last": self.last,
            "cautions": list(self.cautions),
            "issues": [],
        }

    def format(self) -> str:
        """Return the symptom, and what became of it after each change."""
        shown = "nothing goes wrong" if self.symptom is None else str(self.symptom)
        lines = [f"steps {self.first} to {self.last}, unchanged: {shown}"]
        lines += [f"  {trial}" for trial in self.trials]
        lines += [f"  caution: {text}" for text in self.cautions]
        return "\n".join(lines)

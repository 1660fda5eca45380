"""What is known of the gradients of several losses, at one parameter or at all."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nabla_core.issue import Issue
from nabla_core.numbers import json_number
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .gram_facts import GramFacts
from .views.loss_tables import loss_lines

__all__ = ["LossReport"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossReport(ResultMixin):
    """Geometry of the gradients of ``K`` losses, weighted as the total loss weights them.

    Attributes:
        name: what it is about: a parameter, or all.
        losses: names of the losses.
        gram: inner products ``[K, K]`` of the weighted gradients.
        issues: the verdicts; those about all parameters only in the report about all.
        fail_on: severity from which an issue fails the report.
    """

    name: str
    losses: tuple[str, ...]
    gram: Tensor
    issues: tuple[Issue, ...] = ()
    fail_on: Severity = Severity.HIGH

    @property
    def norms(self) -> dict[str, float]:
        """Length of each gradient."""
        return dict(zip(self.losses, GramFacts(self.gram).norms.tolist(), strict=True))

    @property
    def cosines(self) -> dict[tuple[str, str], float]:
        """Cosine of each pair; NaN, that is undefined, when one has length zero."""
        found = GramFacts(self.gram).cosines
        return {
            (first, second): float(found[i, j])
            for i, first in enumerate(self.losses)
            for j, second in enumerate(self.losses)
            if i < j
        }

    @property
    def cancellation(self) -> float:
        """``1 - |sum| / sum of lengths``."""
        return GramFacts(self.gram).cancellation

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "name": self.name,
            "norms": {name: json_number(norm) for name, norm in self.norms.items()},
            "cosines": {f"{a}, {b}": json_number(value) for (a, b), value in self.cosines.items()},
            "cancellation": json_number(self.cancellation),
            "issues": [issue.to_dict() for issue in self.issues],
        }

    def format(self) -> str:
        """Return the table of the losses and the verdicts as text."""
        lines = loss_lines(self.name, self.losses, self.gram)
        return "\n".join([*lines, "", ResultMixin.format(self)])

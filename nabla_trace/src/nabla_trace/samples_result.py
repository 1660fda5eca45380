"""The outcome of ``nabla.trace.samples``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from nabla_core.issue import Issue
from nabla_core.numbers import json_number
from nabla_core.report import Section
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .gram_facts import GramFacts, within_label_cosine
from .rules import samples as sample_rules

__all__ = ["Method", "RankBy", "SamplesResult"]

Method = Literal["auto", "exact", "sketch", "norms", "jvp"]
RankBy = Literal["share", "leave-one-out", "label"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplesResult(ResultMixin):
    """Geometry of the per-sample gradients of one batch.

    Attributes:
        samples: batch size ``N``.
        method: how it was computed.
        gram: inner products ``[N, N]``, float64; ``None`` for the methods norms and jvp.
        squares: squared lengths ``[N]``; ``None`` for jvp.
        projections: inner product of each with the mean gradient ``[N]``; only for jvp.
        layers: name of each parameter → its part of ``gram`` (or ``squares``), if asked for.
        coverage: name of each parameter → the function through which its rows were found.
        missing: name → why a parameter is not part of the result.
        labels: integer labels ``[N]``, if the batch has them.
        losses: loss of each sample ``[N]``, if the loss says.
        batch_norm: length of the sum of all, by autograd.
        reduction: of the loss: none (one per sample), mean, sum or unknown. For all but sum, each
            gradient is scaled as that of the sample's own loss.
        issues: the verdicts.
        fail_on: severity from which an issue fails the result.
    """

    samples: int
    method: Method
    gram: Tensor | None = None
    squares: Tensor | None = None
    projections: Tensor | None = None
    layers: Mapping[str, Tensor] = field(default_factory=dict)
    coverage: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    labels: Tensor | None = None
    losses: Tensor | None = None
    batch_norm: float = 0.0
    reduction: str = "none"
    issues: tuple[Issue, ...] = ()
    fail_on: Severity = Severity.HIGH

    @property
    def norms(self) -> Tensor:
        """Length of each gradient ``[N]``; NaN for the method jvp."""
        if self.squares is None:
            return torch.full((self.samples,), torch.nan)
        return self.squares.clamp(min=0).sqrt()

    @property
    def facts(self) -> GramFacts | None:
        """What follows from :attr:`gram`."""
        return None if self.gram is None else GramFacts(self.gram)

    @property
    def share(self) -> Tensor:
        """Each length as a share of the sum of lengths ``[N]``; for jvp, of the projections."""
        if self.projections is not None:
            total = self.projections.sum()
            return self.projections / total if float(total) else self.projections
        norms = self.norms
        return norms / norms.sum().clamp(min=torch.finfo(norms.dtype).tiny)

    @property
    def cosines(self) -> Tensor | None:
        """Cosine of each pair ``[N, N]``."""
        return None if self.facts is None else self.facts.cosines

    @property
    def leave_one_out(self) -> Tensor | None:
        """Cosine of each sample to the sum of all others ``[N]``."""
        return None if self.facts is None else self.facts.leave_one_out

    @property
    def label_agreement(self) -> Tensor | None:
        """Mean cosine of each sample to the others of its label ``[N]``."""
        if self.facts is None or self.labels is None:
            return None
        return within_label_cosine(self.facts.cosines, self.labels)

    @property
    def cancellation(self) -> float:
        """``1 - |sum| / sum of lengths``: lost length, not a cause."""
        lengths = float(self.norms.sum())
        known = self.facts.total_norm if self.facts is not None else self.batch_norm
        return 1.0 - known / lengths if lengths else float("nan")

    def rank(self, by: RankBy = "share") -> list[int]:
        """Return the indices of the samples, the most remarkable first.

        Args:
            by: ``share``: largest part of the gradient; ``leave-one-out``: most against the others;
                ``label``: least like the samples of its label.

        Raises:
            UsageError: the result lacks what is needed for that.
        """
        from nabla_core.errors import UsageError

        found: Tensor | None = None
        if by == "share":
            found = -self.share
        elif by == "leave-one-out":
            found = self.leave_one_out
        elif by == "label":
            found = self.label_agreement
        else:
            raise UsageError(f"rank(by={by!r}): use share, leave-one-out or label")
        if found is None:
            needs = "integer labels and a Gram" if by == "label" else "a Gram"
            raise UsageError(f"rank(by={by!r}) needs {needs}; method={self.method!r} gives none")
        return [int(i) for i in torch.nan_to_num(found, nan=torch.inf).argsort(stable=True)]

    def format(self) -> str:
        """Return the sample table and the verdicts as text."""
        from .views.sample_table import sample_lines

        return "\n".join([*sample_lines(self), "", ResultMixin.format(self)])

    @property
    def rules_used(self) -> tuple[str, ...]:
        """IDs of the rules that judged it."""
        return tuple(rule.id for rule in sample_rules.RULES)

    def sections(self) -> tuple[Section, ...]:
        """Return what a report shows of it: samples by rank."""
        from .views.plots import sample_plots

        return (Section(title=f"{self.samples} samples", plots=tuple(sample_plots(self))),)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        norms = [json_number(float(norm)) for norm in self.norms]
        return {
            "passed": self.passed,
            "method": self.method,
            "samples": self.samples,
            "norms": norms,
            "share": [json_number(float(share)) for share in self.share],
            "cancellation": json_number(self.cancellation),
            "batch_norm": json_number(self.batch_norm),
            "reduction": self.reduction,
            "coverage": dict(self.coverage),
            "missing": dict(self.missing),
            "issues": [issue.to_dict() for issue in self.issues],
        }

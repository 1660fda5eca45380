"""Everything that follows from the inner products of gradients alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GramFacts", "within_label_cosine"]


@dataclass(frozen=True, slots=True)
class GramFacts:
    """Geometry of some vectors, from their Gram matrix ``[N, N]``.

    A cosine with a vector of length zero is NaN: undefined, not zero.
    """

    gram: Tensor

    @property
    def norms(self) -> Tensor:
        """Lengths, shape ``[N]``."""
        return self.gram.diagonal().clamp(min=0).sqrt()

    @property
    def share(self) -> Tensor:
        """Each length as a share of the sum of lengths, shape ``[N]``."""
        norms = self.norms
        return norms / norms.sum().clamp(min=torch.finfo(norms.dtype).tiny)

    @property
    def total_norm(self) -> float:
        """Length of the sum of all."""
        return float(self.gram.sum().clamp(min=0).sqrt())

    @property
    def cosines(self) -> Tensor:
        """Cosine of each pair, shape ``[N, N]``."""
        norms = self.norms
        return _ratio(self.gram, norms[:, None] * norms[None, :]).clamp(-1, 1)

    @property
    def cosine_to_sum(self) -> Tensor:
        """Cosine of each with the sum of all, itself included, shape ``[N]``."""
        total = self.gram.sum().clamp(min=0).sqrt()
        return _ratio(self.gram.sum(1), self.norms * total).clamp(-1, 1)

    @property
    def leave_one_out(self) -> Tensor:
        """Cosine of each with the sum of all others, shape ``[N]``."""
        squares, rows = self.gram.diagonal(), self.gram.sum(1)
        others = (self.gram.sum() - 2 * rows + squares).clamp(min=0).sqrt()
        # below the rounding of the sum, the others cancel: there is no direction to compare with
        noise = torch.finfo(self.gram.dtype).eps ** 0.5 * self.norms.sum()
        others = torch.where(others > noise, others, 0.0)
        return _ratio(rows - squares, self.norms * others).clamp(-1, 1)

    @property
    def cancellation(self) -> float:
        """``1 - |sum| / sum of lengths``; NaN when all are zero."""
        lengths = float(self.norms.sum())
        return 1.0 - self.total_norm / lengths if lengths else float("nan")

    @property
    def agreement(self) -> float:
        """``|sum|^2 / sum of squares``: 1 for independent vectors, N for equal ones."""
        squares = float(self.gram.diagonal().sum())
        return float(self.gram.sum()) / squares if squares else float("nan")

    @property
    def effective_rank(self) -> float:
        """``tr(K)^2 / |K|^2``: how many directions the vectors span."""
        square = float(self.gram.square().sum())
        return float(self.gram.diagonal().sum()) ** 2 / square if square else 0.0


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below > 0, above / below.where(below > 0, torch.ones_like(below)), torch.nan)


def within_label_cosine(cosines: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cosine of each sample to the others of its label, shape ``[N]``.

    Args:
        cosines: shape ``[N, N]``.
        labels: integers, shape ``[N]``.

    Returns:
        NaN for a sample that is alone with its label.
    """
    same = labels[:, None] == labels[None, :]
    same.fill_diagonal_(False)
    known = same & ~cosines.isnan()
    sums = torch.where(known, cosines, torch.zeros_like(cosines)).sum(1)
    counts = known.sum(1)
    return torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan)

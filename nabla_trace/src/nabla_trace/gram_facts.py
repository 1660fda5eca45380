"""Everything that follows from the inner products of gradients alone."""

from __future__ import annotations

import math
from functools import cached_property
from operator import mul

import torch
from torch import Tensor

__all__ = ["GramFacts", "within_label_cosine"]


class GramFacts:
    """Geometry of some vectors, from their Gram matrix ``[N, N]``.

    A cosine with a vector of length zero is NaN: undefined, not zero. What has been asked for is
    kept.

    Args:
        gram: the inner products.
    """

    def __init__(self, gram: Tensor) -> None:
        self.gram = gram

    @cached_property
    def squares(self) -> Tensor:
        """Squared lengths, shape ``[N]``."""
        return self.gram.diagonal().clamp(min=0)

    @cached_property
    def norms(self) -> Tensor:
        """Lengths, shape ``[N]``."""
        return self.squares.sqrt()

    @property
    def share(self) -> Tensor:
        """Each length as a share of the sum of lengths, shape ``[N]``."""
        norms = self.norms
        return norms / norms.sum().clamp(min=torch.finfo(norms.dtype).tiny)

    @cached_property
    def rows(self) -> Tensor:
        """Inner product of each with the sum of all, shape ``[N]``."""
        return self.gram.sum(1)

    @cached_property
    def lengths(self) -> list[float]:
        """:attr:`norms` on the host: many small questions are asked of them."""
        found: list[float] = self.norms.tolist()
        return found

    @cached_property
    def total_norm(self) -> float:
        """Length of the sum of all."""
        square = float(self.gram.sum())
        return math.sqrt(square) if not square <= 0 else 0.0

    @cached_property
    def cosines(self) -> Tensor:
        """Cosine of each pair, shape ``[N, N]``."""
        inverse = self.norms.reciprocal()
        inverse = torch.where(inverse.isfinite(), inverse, torch.nan)
        return (self.gram * inverse[:, None]).mul_(inverse).clamp_(-1, 1)

    @property
    def cosine_to_sum(self) -> Tensor:
        """Cosine of each with the sum of all, itself included, shape ``[N]``."""
        return _ratio(self.rows, self.norms * self.total_norm).clamp(-1, 1)

    @property
    def rest_squares(self) -> Tensor:
        """Squared length of the sum of all others, for each, shape ``[N]``."""
        return (self.rows.sum() - 2 * self.rows + self.squares).clamp(min=0)

    @property
    def leave_one_out(self) -> Tensor:
        """Cosine of each with the sum of all others, shape ``[N]``."""
        others = self.rest_squares.sqrt()
        # below the rounding of the sum, the others cancel: there is no direction to compare with
        noise = torch.finfo(self.gram.dtype).eps ** 0.5 * self.norms.sum()
        others = torch.where(others > noise, others, 0.0)
        return _ratio(self.rows - self.squares, self.norms * others).clamp(-1, 1)

    @property
    def rest_agreement(self) -> Tensor:
        """:attr:`agreement` of all others, for each, shape ``[N]``."""
        return _ratio(self.rest_squares, self.squares.sum() - self.squares)

    @property
    def cancellation(self) -> float:
        """``1 - |sum| / sum of lengths``; NaN when all are zero."""
        lengths = sum(self.lengths)
        return 1.0 - self.total_norm / lengths if lengths else float("nan")

    @property
    def agreement(self) -> float:
        """``|sum|^2 / sum of squares``: 1 for independent vectors, N for equal ones."""
        squares = sum(map(mul, self.lengths, self.lengths))
        return self.total_norm**2 / squares if squares else float("nan")

    @property
    def effective_rank(self) -> float:
        """``tr(K)^2 / |K|^2``: how many directions the vectors span."""
        square = float(self.gram.square().sum())
        return float(self.gram.diagonal().sum()) ** 2 / square if square else 0.0


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below > 0, above / below, torch.nan)


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

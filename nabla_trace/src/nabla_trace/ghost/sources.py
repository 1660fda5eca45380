"""Per-sample gradients of one use of a parameter, as something that can be asked slice by slice.

A use is kept as its factors. The rows of all samples for a slice of the parameter are made, used
and dropped, so that memory is bounded by the budget and not by samples times parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["DenseRows", "OuterRows", "Products", "RowSource", "TokenRows", "blockwise"]


class RowSource(Protocol):
    """What one use of a parameter contributes to the gradient of each sample."""

    @property
    def samples(self) -> int:
        """Number of samples ``N``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter; at least one axis."""

    def block(self, low: int, high: int) -> Tensor:
        """Rows for ``parameter[low:high]``, shape ``[N, (high - low) * rest]``."""

    def shortcut(self, pairs: bool, budget: int) -> Tensor | None:
        """The Gram ``[N, N]`` (or squared norms ``[N]``) without rows, where that is cheaper."""


class Products:
    """Inner products ``[N, N]`` of some rows ``[N, P]``, made once for all that ask for them.

    Attributes:
        rows: shape ``[N, P]``.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self._made: Tensor | None = None

    def gram(self) -> Tensor:
        """Return them; not to be written to."""
        if self._made is None:
            self._made = self.rows @ self.rows.T
        return self._made


@dataclass(frozen=True, slots=True)
class DenseRows:
    """Rows that are small enough to be kept.

    Attributes:
        rows: shape ``[N, *parameter]``.
        products: of the same rows, where others need them, too.
    """

    rows: Tensor
    products: Products | None = None

    @property
    def samples(self) -> int:
        """See :class:`RowSource`."""
        return self.rows.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`RowSource`."""
        return tuple(self.rows.shape[1:]) or (1,)

    def block(self, low: int, high: int) -> Tensor:
        """See :class:`RowSource`."""
        rows = self.rows.reshape(self.samples, *self.shape)
        return rows[:, low:high].reshape(self.samples, -1)

    def shortcut(self, pairs: bool, budget: int) -> Tensor | None:
        """See :class:`RowSource`."""
        if not pairs:
            return None
        if self.products is not None:
            return self.products.gram()
        rows = self.rows.reshape(self.samples, -1)
        return rows @ rows.T


@dataclass(frozen=True, slots=True)
class OuterRows:
    """A matrix whose gradient is a sum of outer products: ``sum_t left[n, t] right[n, t]^T``.

    Attributes:
        left: shape ``[N, T, P]``; ``P`` is the first axis of the matrix.
        right: shape ``[N, T, Q]``.
        products: of ``left`` with ``T = 1``, where others need them, too.

    Source: ghost norms, Li et al. 2021 (arXiv 2110.05679), generalised to pairs of samples.
    """

    left: Tensor
    right: Tensor
    products: Products | None = None

    @property
    def samples(self) -> int:
        """See :class:`RowSource`."""
        return self.left.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`RowSource`."""
        return (self.left.shape[-1], self.right.shape[-1])

    def block(self, low: int, high: int) -> Tensor:
        """See :class:`RowSource`."""
        part = torch.bmm(self.left[..., low:high].mT, self.right)
        return part.reshape(self.samples, -1)

    def shortcut(self, pairs: bool, budget: int) -> Tensor | None:
        """See :class:`RowSource`."""
        samples, length, outputs = self.left.shape
        inputs = self.right.shape[-1]
        if length == 1:
            return self._single(pairs)
        others = samples if pairs else 1
        ghost = samples * others * length**2 * (outputs + inputs)
        explicit = samples * (length + others) * outputs * inputs
        if ghost >= explicit:
            return None
        return self._pairs(budget) if pairs else self._norms(budget)

    def _single(self, pairs: bool) -> Tensor:
        right = self.right[:, 0]
        if pairs and self.products is not None:
            return (right @ right.T).mul_(self.products.gram())
        left = self.left[:, 0]
        if pairs:
            return (right @ right.T).mul_(left @ left.T)
        return left.square().sum(1) * right.square().sum(1)

    def _norms(self, budget: int) -> Tensor:
        length = self.left.shape[1]
        step = max(1, budget // (2 * length * length))
        parts = []
        for low in range(0, self.samples, step):
            left, right = self.left[low : low + step], self.right[low : low + step]
            parts.append((left @ left.mT).mul_(right @ right.mT).sum((1, 2)))
        return torch.cat(parts)

    def _pairs(self, budget: int) -> Tensor:
        samples, length, _ = self.left.shape
        left, right = self.left.flatten(0, 1), self.right.flatten(0, 1)
        step = max(1, budget // (2 * length * length * samples))
        parts = []
        for low in range(0, samples, step):
            rows = slice(low * length, (low + step) * length)
            both = (left[rows] @ left.T).mul_(right[rows] @ right.T)
            parts.append(both.view(-1, length, samples, length).sum((1, 3)))
        return torch.cat(parts)


@dataclass(frozen=True, slots=True)
class TokenRows:
    """An embedding: ``values[n, t]`` is added to row ``index[n, t]`` of the matrix.

    Attributes:
        index: shape ``[N, T]``.
        values: shape ``[N, T, D]``.
        size: rows of the matrix.
    """

    index: Tensor
    values: Tensor
    size: int

    @property
    def samples(self) -> int:
        """See :class:`RowSource`."""
        return self.values.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`RowSource`."""
        return (self.size, self.values.shape[-1])

    def block(self, low: int, high: int) -> Tensor:
        """See :class:`RowSource`."""
        return _scattered(self.index, self.values, low, high)

    def shortcut(self, pairs: bool, budget: int) -> Tensor | None:
        """See :class:`RowSource`."""
        tokens, index = torch.unique(self.index, return_inverse=True)
        used = TokenRows(index, self.values, tokens.numel())
        return blockwise([used], pairs, budget)[0]


def _scattered(index: Tensor, values: Tensor, low: int, high: int) -> Tensor:
    """Sum values into rows ``low:high`` for each sample, shape ``[N, (high - low) * D]``."""
    samples, _, width = values.shape
    height = high - low
    inside = (index >= low) & (index < high)
    offset = torch.arange(samples, device=index.device).unsqueeze(1) * height
    target = (index - low + offset)[inside]
    rows = values.new_zeros(samples * height, width)
    return rows.index_add_(0, target, values[inside]).reshape(samples, -1)


def blockwise(sources: Sequence[RowSource], pairs: bool, budget: int) -> tuple[Tensor, Tensor]:
    """Return the Gram ``[N, N]`` (or squared norms ``[N]``) of the sum of some uses.

    The second result is the squared norm of the sum over all samples, for checking.

    Args:
        sources: uses of one parameter; all of the same shape.
        pairs: whether all pairs are wanted.
        budget: elements that the rows of one slice may have.
    """
    first = sources[0]
    height, rest = first.shape[0], prod(first.shape[1:])
    step = max(1, min(height, budget // max(1, first.samples * rest)))
    total = whole = None
    for low in range(0, height, step):
        rows = first.block(low, min(height, low + step))
        for other in sources[1:]:
            rows = rows + other.block(low, min(height, low + step))
        part = rows @ rows.T if pairs else rows.square().sum(1)
        total = part if total is None else total.add_(part)
        if not pairs:
            square = rows.sum(0).square().sum()
            whole = square if whole is None else whole + square
    if total is None:
        total = torch.zeros((first.samples,) * (2 if pairs else 1))
    return total, total.sum() if whole is None else whole

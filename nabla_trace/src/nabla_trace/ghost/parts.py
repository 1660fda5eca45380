"""The Gram matrices of single parameters, added up many at a time."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["Measure", "Parts"]

Measure = Literal["pairs", "norms", "sketch"]
"""All inner products, only squared norms, or all inner products of projected gradients."""

_MOST = 1_000_000
"""Elements of parts that may wait to be added up."""


class Parts:
    """Sums parts ``[N, N]`` (or ``[N]``) in float64, and what they are checked by.

    Parts wait until there are many: for small batches the calls cost more than the sums.

    Args:
        measure: what the parts are.
        every_layer: whether the parts are kept.

    Attributes:
        total: their sum; ``None`` before the first :meth:`fold`.
        layers: name → part, if wanted.
    """

    def __init__(self, measure: Measure, *, every_layer: bool) -> None:
        self.total: Tensor | None = None
        self.layers: dict[str, Tensor] = {}
        self._measure, self._every_layer = measure, every_layer
        self._waiting: list[tuple[str, Tensor, Tensor | None]] = []
        self._checks: dict[str, tuple[float | None, float]] = {}
        self._unread: list[tuple[list[str], list[bool], Tensor]] = []

    def add(self, name: str, part: Tensor, whole: Tensor | None) -> None:
        """Take a part in; it must not change any more.

        Args:
            name: of the parameter.
            part: inner products, or squared norms.
            whole: for squared norms, that of the sum over the samples, if it is known.
        """
        first = self._waiting[0][1] if self._waiting else part
        alike = part.dtype is first.dtype and part.device == first.device
        if not alike or part.numel() * len(self._waiting) > _MOST:
            self.fold()
        self._waiting.append((name, part, whole))

    def fold(self) -> None:
        """Add up what waits."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        names = [name for name, _, _ in waiting]
        stack = torch.stack([part for _, part, _ in waiting])
        if stack.device.type != "mps":  # which has no float64
            stack = stack.double()
        total = stack.sum(0)
        self.total = total if self.total is None else self.total.add_(total)
        if self._every_layer:
            self.layers.update(zip(names, stack, strict=True))
        wholes = [whole for _, _, whole in waiting]
        known = [self._is_known(whole) for whole in wholes]
        self._unread.append((names, known, self._sums(stack, wholes)))

    def checks(self) -> dict[str, tuple[float | None, float]]:
        """Return for each name the squared norm of the sum over the samples, if it is known, and
        the sum of their squared norms."""
        for names, are_known, sums in self._unread:
            rows = zip(names, are_known, *sums.tolist(), strict=True)
            for name, known, whole, spread in rows:
                self._checks[name] = whole if known else None, spread
        self._unread = []
        return self._checks

    # ------------------------------------------------------------------ private
    def _is_known(self, whole: Tensor | None) -> bool:
        """Whether the squared norm of the sum is known: inner products have it in them, and those
        of projections only nearly."""
        if self._measure == "norms":
            return whole is not None
        return self._measure == "pairs"

    def _sums(self, stack: Tensor, wholes: list[Tensor | None]) -> Tensor:
        """Return both checks of each part, shape ``[2, parts]``; zero for what is not known."""
        if self._measure == "norms":
            spreads = stack.sum(1)
            none = torch.zeros_like(spreads[0])
            known = [none if whole is None else whole.to(none.dtype) for whole in wholes]
            return torch.stack([torch.stack(known), spreads])
        spreads = stack.diagonal(dim1=1, dim2=2).sum(1)
        return torch.stack([stack.flatten(1).sum(1), spreads])

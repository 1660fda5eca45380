"""Follows, in a live loop, loss terms that move the residual of another term.

At the end of training any two losses on the same parameters oppose each other: that is what a
compromise is. An auxiliary loss that reads the very residual of the main loss is no compromise by
design; only such pairs are followed, and programs without one are looked at three times and left
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from .loss_graph import addends_of, shared_leaves, shared_residual

__all__ = ["Opposition", "ResidualWatch"]

_LOOKS = 3
_EVERY = 10
_MOST = 40
_EVENTS = frozenset(
    {"forward_ended", "backward_started", "backward_ended", "step_started", "step_ended"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opposition:
    """Gradients of two terms at the leaves that both train.

    Attributes:
        cosine: of the two; NaN when one is zero.
        ratio: longer over shorter.
        cancellation: share of their lengths that is lost in their sum.
        leaves: number of leaves.
    """

    cosine: float
    ratio: float
    cancellation: float
    leaves: int


class ResidualWatch:
    """A family of facts of the live instrument, gathered while a detector asks for it.

    Attributes:
        found: what was measured, in order.
    """

    def __init__(self, loop: object) -> None:
        self.loop = loop
        self.found: list[Opposition] = []
        self._looks = 0
        self._passes = 0
        self._has_pair = False

    @property
    def patient(self) -> frozenset[str]:
        """Events that it can do without in steps that are like the ones before."""
        return _EVENTS if self._is_done else frozenset()

    @property
    def _is_done(self) -> bool:
        return len(self.found) >= _MOST or (self._looks >= _LOOKS and not self._has_pair)

    def start(self, patches: object) -> None:
        """Watching begins: nothing is replaced."""

    def stop(self) -> None:
        """Watching ends: nothing is held."""

    def forward_ended(
        self, root: object, module: object, args: object, kwargs: Mapping[str, object]
    ) -> None:
        """A model returned."""

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Look for a pair; measure it in every tenth pass."""
        if self._is_done:
            return
        self._passes += 1
        if self._looks < _LOOKS or (self._has_pair and self._passes % _EVERY == 0):
            self._looks += 1
            for root in roots:
                if root.numel() == 1:
                    self._look(root)

    def backward_ended(self, roots: object, written: object, call: object) -> None:
        """Gradients are written."""

    def step_started(self, record: object, optimizer: object) -> None:
        """A step is about to run."""

    def step_ended(self, record: object, optimizer: object) -> None:
        """A step is over."""

    # ------------------------------------------------------------------ private
    def _look(self, root: Tensor) -> None:
        edges = addends_of(root)
        for first in edges:
            for second in edges:
                if first is second or not shared_residual(first, second):
                    continue
                self._has_pair = True
                if self._passes % _EVERY == 0:
                    self.found.append(_measure(root, first, second))
                return


def _measure(root: Tensor, first: GradientEdge, second: GradientEdge) -> Opposition:
    leaves = shared_leaves(first, second)
    seeds = torch.autograd.grad(root, [first, second], retain_graph=True)
    rows = []
    for edge, seed in zip((first, second), seeds, strict=True):
        grads = torch.autograd.grad([edge], leaves, [seed], retain_graph=True, allow_unused=True)
        pairs = zip(grads, leaves, strict=True)
        flat = [(torch.zeros_like(leaf) if g is None else g).flatten() for g, leaf in pairs]
        rows.append(torch.cat(flat).detach().float())
    lengths = [float(row.norm()) for row in rows]
    short, long = sorted(lengths)
    if not short > 0:
        return Opposition(cosine=float("nan"), ratio=float("inf"), cancellation=0.0, leaves=0)
    return Opposition(
        cosine=float(torch.dot(*rows)) / (short * long),
        ratio=long / short,
        cancellation=1 - float((rows[0] + rows[1]).norm()) / (short + long),
        leaves=len(leaves),
    )

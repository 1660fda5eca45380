"""What a program does with a loss, read off the graph between the loss and where backward starts.

A mask, a weight or a kernel stands above the loss that it concerns; what is only multiplied by zero
is never counted, and a difference that is put into an exponential was no error.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd.graph import Node

from .graph import RESHAPES, children, name_of, saved_tensor

__all__ = ["LossContext"]

_REDUCTIONS = frozenset({"Mean", "Sum"})
_LINEAR = frozenset({"Add", "Div", "Neg", "Sub"})
_ERRORS = (
    frozenset({"Abs", "Clamp", "Cosh", "Log", "Maximum", "Minimum", "Mul", "Pow", "Sqrt", "Where"})
    | _LINEAR
    | RESHAPES
)
"""What may stand between a difference and the mean of its errors."""
_MAX_NODES = 64


class LossContext:
    """The nodes above each node of a graph; they are looked up only when something is asked.

    Args:
        nodes: all nodes of the graph.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = nodes
        self._above: dict[Node, list[Node]] | None = None

    def above(self, node: Node) -> list[Node]:
        """The nodes that take what ``node`` computed."""
        if self._above is None:
            self._above = {}
            for parent in self._nodes:
                for child in children(parent):
                    self._above.setdefault(child, []).append(parent)
        return self._above.get(node, [])

    def takes_partition(self, node: Node) -> bool:
        """Whether the log of the sum of exponentials of the same values is taken as well."""
        return any(name_of(parent) == "Logsumexp" for parent in self.above(node))

    def is_error(self, node: Node) -> bool:
        """Whether nothing but the arithmetic of errors stands between a difference and the sums or
        means that it ends in."""
        waiting, seen = self.above(node), set[Node]()
        while waiting and len(seen) < _MAX_NODES:
            parent = waiting.pop()
            if parent in seen or name_of(parent) in _REDUCTIONS:
                continue
            seen.add(parent)
            if name_of(parent) not in _ERRORS:
                return False
            waiting = [*waiting, *self.above(parent)]
        return True

    def counted(self, node: Node, target: Tensor) -> Tensor | None:
        """The targets that an elementwise loss counts: flat, those that no mask or weight of zero
        leaves out; ``None`` when that cannot be told.

        Args:
            node: the loss.
            target: what it saved.
        """
        kept = _without(target, saved_tensor(node, "weight"))
        current, arranged = node, False
        for _ in range(_MAX_NODES):
            parents = self.above(current)
            if len(parents) != 1 or name_of(parents[0]) in _REDUCTIONS:
                return None if len(parents) > 1 else target[kept]
            current = parents[0]
            name = name_of(current)
            arranged = arranged or name in RESHAPES
            factor = _factor(current) if name == "Mul" else None
            if factor is not None and not arranged:
                kept = kept & _without(target, factor)
            elif name not in _LINEAR and name not in RESHAPES:
                return None
        return None


def _factor(node: Node) -> Tensor | None:
    if len(children(node)) != 1:
        return None
    other = saved_tensor(node, "other")
    if other is None:
        other = saved_tensor(node, "self")
    number = getattr(node, "_saved_other", None)
    return torch.ones(()) if other is None and isinstance(number, (int, float)) else other


def _without(target: Tensor, factor: Tensor | None) -> Tensor:
    """Which entries are not multiplied by zero; all where the shapes do not belong together."""
    everything = torch.ones_like(target, dtype=torch.bool)
    if factor is None:
        return everything
    try:
        return everything & (factor.detach() != 0)
    except RuntimeError:
        return everything

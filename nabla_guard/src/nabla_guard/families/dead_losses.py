"""Operators whose derivative is exactly zero for what they were given, whatever the values.

A softmax over an axis of length one is the constant one, and a difference of a tensor with itself
the constant zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch.autograd.graph import Node

from .graph import leaf_of, name_of, saved_int, shape_of

__all__ = ["dead_losses", "self_penalty"]

_SOFTMAXES = frozenset({"LogSoftmax", "Softmax"})
_SIZES = frozenset({"Abs", "LinalgVectorNorm", "Mul", "Norm", "Pow"})
_DIFFERENCES = frozenset({"HuberLoss", "MseLoss", "SmoothL1Loss", "Sub"})


def dead_losses(nodes: Iterable[Node]) -> Iterator[tuple[Node, str]]:
    """Yield such operators among ``nodes``, each with a description of it."""
    for node in nodes:
        name = name_of(node)
        if name in _SOFTMAXES and _runs_over_one(node):
            yield node, "a softmax over an axis of length one"
        elif name in _DIFFERENCES and _is_of_itself(node):
            yield node, "a difference of a tensor with itself"


def self_penalty(node: Node, above: Iterable[Node]) -> bool:
    """Whether ``node`` takes a parameter from itself, and all that follows is a size of that.

    A difference that is only added up may be there to touch a parameter; one that is squared was
    meant to be a distance.
    """
    below = node.next_functions[0][0] if node.next_functions else None
    names = {name_of(parent) for parent in above}
    leaf = below is not None and leaf_of(below) is not None
    return leaf and bool(names) and names <= _SIZES and _is_of_itself(node)


def _runs_over_one(node: Node) -> bool:
    shape, axis = shape_of(node) or (), saved_int(node, "dim")
    return bool(shape) and axis is not None and axis < len(shape) and shape[axis] == 1


def _is_of_itself(node: Node) -> bool:
    sides = node.next_functions
    return len(sides) == 2 and sides[0][0] is not None and sides[0] == sides[1]

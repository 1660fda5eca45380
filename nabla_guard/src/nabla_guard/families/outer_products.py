"""Products of a column and a flat tensor that are averaged whole: a loss that falls apart.

The sum of ``a[i] * b[j]`` over all pairs is the product of two sums: what was meant as a sum over
samples no longer pairs each prediction with its own target. Nobody writes that on purpose, as long
as nothing but additions stand between the product and the reduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch.autograd.graph import Node

from .graph import children, name_of, saved_tensor, shape_of

__all__ = ["OuterProduct", "outer_products"]

_REDUCTIONS = frozenset({"Mean", "Sum"})
_SCALAR = frozenset({"Add", "Div", "Mul", "Neg", "Sub"})
_ADDITIVE = frozenset({"Add", "Minimum", "Neg", "Sub"})
_MIN_LENGTH = 2
_MAX_NODES = 256


@dataclass(frozen=True, slots=True)
class OuterProduct:
    """One such product.

    Attributes:
        given: shape of the side with a gradient.
        other: shape of the constant side.
        shape: shape of the product.
    """

    given: tuple[int, ...]
    other: tuple[int, ...]
    shape: tuple[int, ...]


def outer_products(tops: Iterable[Node]) -> Iterator[OuterProduct]:
    """Walk from the roots of a scalar loss to the products that its sums are made of."""
    waiting = [(node, True) for node in tops]
    seen: set[Node] = set()
    while waiting and len(seen) < _MAX_NODES:
        node, scalar = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        name = name_of(node)
        if scalar and name in _REDUCTIONS:
            waiting += [(child, False) for child in children(node)]
        elif scalar and name in _SCALAR:
            waiting += [(child, True) for child in children(node)]
        elif not scalar and name == "Mul":
            found = _outer(node)
            if found is not None:
                yield found
            elif not _is_pointwise(node):
                waiting += [(child, False) for child in children(node)]
        elif not scalar and name in _ADDITIVE:
            waiting += [(child, False) for child in children(node)]


def _is_pointwise(node: Node) -> bool:
    """Whether a product weighs single entries, which no longer factorises; a number does not."""
    other = saved_tensor(node, "other")
    other = saved_tensor(node, "self") if other is None else other
    return len(children(node)) > 1 or (other is not None and other.numel() > 1)


def _outer(node: Node) -> OuterProduct | None:
    sides = children(node)
    if len(sides) != 1:
        return None
    other = saved_tensor(node, "other")
    other = saved_tensor(node, "self") if other is None else other
    given, shape = shape_of(sides[0]), _shape(node, sides[0])
    if other is None or given is None or shape is None:
        return None
    length = max(other.numel(), 1)
    flat, column = (length,), (length, 1)
    if length < _MIN_LENGTH or {given, tuple(other.shape)} != {flat, column}:
        return None
    return OuterProduct(given=given, other=tuple(other.shape), shape=(length, length))


def _shape(node: Node, side: Node) -> tuple[int, ...] | None:
    return shape_of(node) or shape_of(side)

"""Takes a summed loss apart, as its graph shows it: addends, and what they share."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

__all__ = ["addends_of", "shared_residual", "shared_leaves"]

_MOST_NODES = 20_000
_SUFFIX = re.compile(r"Backward\d*$")
_DIFFERENCES = frozenset({"Sub", "Rsub"})
_SCALING = frozenset({"Mul", "Div", "Neg"})


def addends_of(root: Tensor) -> list[GradientEdge]:
    """Return the differentiable addends of a scalar; factors in front of a sum are passed."""
    if root.grad_fn is None:
        return []
    found: list[GradientEdge] = []
    queue = [(root.grad_fn, root.output_nr)]
    while queue and len(found) < 16:
        node, number = queue.pop(0)
        children = [(child, place) for child, place in node.next_functions if child is not None]
        name = _name(node)
        passes = name == "Add" or (
            name in _SCALING and len(children) == 1 and _sums(children[0][0])
        )
        if passes and children and not any(_is_leaf(child) for child, _ in children):
            queue.extend(children)
        else:
            found.append(GradientEdge(node, number))
    return found


def shared_residual(first: GradientEdge, second: GradientEdge) -> bool:
    """Whether ``second`` compares something trained with the residual of what ``first`` trains.

    That is so when ``second`` holds ``guess - (target - prediction)``, and every parameter of
    ``first`` lies behind this prediction.
    """
    mine = set(_nodes(first.node, None))
    for node in _nodes(second.node, None):
        if _name(node) not in _DIFFERENCES or len(_inputs(node)) != 2:
            continue
        for side in _inputs(node):
            inputs = _inputs(side)
            if _name(side) not in _DIFFERENCES or len(inputs) != 1 or inputs[0] not in mine:
                continue
            behind = inputs[0]
            if not any(_is_leaf(found) for found in _nodes(first.node, behind)):
                return any(_is_leaf(found) for found in _nodes(behind, None))
    return False


def shared_leaves(first: GradientEdge, second: GradientEdge) -> list[Tensor]:
    """Return the leaves that both addends depend on."""
    mine, other = set(_nodes(first.node, None)), set(_nodes(second.node, None))
    leaves = (getattr(node, "variable", None) for node in mine & other)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _nodes(start: Node, stop: Node | None) -> Iterator[Node]:
    """Yield the nodes below ``start``; not those that lie behind ``stop`` only."""
    queue, seen = [start], {start}
    while queue and len(seen) < _MOST_NODES:
        node = queue.pop()
        yield node
        if node is stop:
            continue
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                queue.append(child)


def _sums(node: Node) -> bool:
    if _name(node) == "Add":
        return True
    children = _inputs(node)
    return _name(node) in _SCALING and len(children) == 1 and _sums(children[0])


def _inputs(node: Node) -> list[Node]:
    return [child for child, _ in node.next_functions if child is not None]


def _is_leaf(node: Node) -> bool:
    return hasattr(node, "variable")


def _name(node: Node) -> str:
    return _SUFFIX.sub("", node.name())

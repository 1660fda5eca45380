"""Why two losses oppose each other, as far as their graph shows it.

Opposition alone is no fault. A critic is told to rise on one set of inputs and to fall on another,
a penalty pulls against the fit, and any two losses oppose each other where training has found
their compromise. What no training resolves has a form: a loss and its negative, two targets of one
output that contradict each other, a loss that moves the residual it should only read.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from nabla_core.severity import Severity

from .live.loss_graph import shared_residual

__all__ = ["Opposition", "is_clamped", "is_fit", "opposition_of"]

_CONTRADICTION = -0.3
_FEWEST_CLASSES = 8
_BALANCED = 0.1
_MOST_NODES = 20_000
_BOUNDS = ("ClampBackward", "ClampMin", "ClampMax", "MaximumBackward", "MinimumBackward")
_FORMS = ("LogSoftmaxBackward", "SigmoidBackward", "ViewBackward", "SqueezeBackward")
_OF_WEIGHTS = ("TBackward", "TransposeBackward", "ViewBackward", "PermuteBackward")


class Opposition(Enum):
    """What is known of a pair, and how it is said."""

    NEGATIVE = "one is the negative of the other"
    TARGETS = "they want contradictory values of one output"
    RESIDUAL = "one moves the residual that it should only read"
    CONTRAST = "they hold one function at different inputs, as adversaries and contrasts do"
    PENALTY = "not both are compared with a target: a penalty pulls against the fit"
    BALANCE = "they cancel, as they do where training has found their compromise"
    OPEN = "whether more than this batch sets them apart is not known"

    @property
    def severity(self) -> Severity:
        """How certain it is that something is wrong."""
        is_fault = self in (Opposition.NEGATIVE, Opposition.TARGETS, Opposition.RESIDUAL)
        return Severity.MEDIUM if is_fault else Severity.INFO


def opposition_of(first: Tensor, second: Tensor, cosine: float, ratio: float) -> Opposition:
    """Return why two losses oppose each other.

    Args:
        first: a scalar with a graph.
        second: another.
        cosine: of their gradients.
        ratio: longer over shorter gradient, with the weights of the total.
    """
    edges = get_gradient_edge(first), get_gradient_edge(second)
    if _scaled(edges[0].node) is _scaled(edges[1].node):
        return Opposition.NEGATIVE
    if shared_residual(*edges) or shared_residual(edges[1], edges[0]):
        return Opposition.RESIDUAL
    mine, other = (_reached(edge.node) for edge in edges)
    fits = _comparisons(mine - other), _comparisons(other - mine)
    if _contradict(*fits):
        return Opposition.TARGETS
    common = _common(edges[0], mine, other) & _common(edges[1], other, mine)
    if not common or _are_disjoint(first, second, list(common)):
        return Opposition.CONTRAST
    if not all(fits):
        return Opposition.PENALTY
    if 1 + 2 * cosine * ratio / (1 + ratio**2) < _BALANCED:
        return Opposition.BALANCE
    return Opposition.OPEN


def is_fit(loss: Tensor) -> bool:
    """Whether a loss compares something with a target, as far as its graph shows it."""
    return loss.grad_fn is not None and bool(_comparisons(_reached(loss.grad_fn)))


def is_clamped(loss: Tensor) -> bool:
    """Whether a loss passes a bound of its own, behind the last layer."""
    queue = [] if loss.grad_fn is None else [loss.grad_fn]
    seen = set(queue)
    while queue:
        node = queue.pop()
        children = [child for child, _ in node.next_functions if child is not None]
        if any(map(_of_weights, children)):
            continue  # a layer
        if node.name().startswith(_BOUNDS):
            return True
        queue += [child for child in children if child not in seen]
        seen.update(children)
    return False


def _scaled(node: Node) -> Node:
    """Return the node behind the factors of a scalar."""
    while node.name().startswith(("NegBackward", "MulBackward", "DivBackward")):
        children = [child for child, _ in node.next_functions if child is not None]
        if len(children) != 1:
            break
        node = children[0]
    return node


def _reached(start: Node) -> set[Node]:
    queue, seen = [start], {start}
    while queue and len(seen) < _MOST_NODES:
        for child, _ in queue.pop().next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                queue.append(child)
    return seen


def _common(root: GradientEdge, mine: set[Node], other: set[Node]) -> set[tuple[Node, int]]:
    """Return what both read: edges out of what is ``mine`` alone to what is also the other's."""
    found = {(root.node, 0)} if root.node in other else set()
    for node in mine - other:
        for child, place in node.next_functions:
            if child is not None and child in other and not _of_weights(child):
                found.add((child, place))
    return found


def _of_weights(node: Node) -> bool:
    """Whether a value is a parameter, or only another form of one."""
    if hasattr(node, "variable"):
        return True
    if not node.name().startswith(_OF_WEIGHTS):
        return False
    return all(child is None or _of_weights(child) for child, _ in node.next_functions)


def _are_disjoint(first: Tensor, second: Tensor, common: list[tuple[Node, int]]) -> bool:
    """Whether the two read different entries of all that they share: other samples, other tasks."""
    edges = [GradientEdge(node, place) for node, place in common]
    grads = [
        torch.autograd.grad(loss, edges, retain_graph=True, allow_unused=True)
        for loss in (first, second)
    ]
    pairs = [(a, b) for a, b in zip(*grads, strict=True) if a is not None and b is not None]
    return not any(bool(((a != 0) & (b != 0)).any()) for a, b in pairs)


def _comparisons(nodes: set[Node]) -> list[tuple[Node, Tensor]]:
    """Return the nodes that compare a prediction with a target, and the targets."""
    found = []
    for node in nodes:
        try:
            target = getattr(node, "_saved_target", None)
        except RuntimeError:  # written in place since
            continue
        if isinstance(target, Tensor):
            found.append((node, target))
    return found


def _contradict(mine: list[tuple[Node, Tensor]], other: list[tuple[Node, Tensor]]) -> bool:
    """Whether one output is compared with targets that no output can meet together."""
    return any(
        _compared(first) == _compared(second)
        and target.shape == wanted.shape
        and _differ(target.detach(), wanted.detach())
        for first, target in mine
        for second, wanted in other
    )


def _compared(node: Node) -> tuple[Node | None, int]:
    """Return the output that a target is held against, before its form for this loss."""
    child, place = node.next_functions[0]
    while child is not None and child.name().startswith(_FORMS):
        child, place = child.next_functions[0]
    return child, place


def _differ(first: Tensor, second: Tensor) -> bool:
    if not first.is_floating_point() or not second.is_floating_point():
        return first.numel() >= _FEWEST_CLASSES and not bool((first == second).any())
    length = float(first.norm()) * float(second.norm())
    return length > 0 and float((first * second).sum()) / length < _CONTRADICTION

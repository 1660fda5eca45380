"""Targets that the last activation of a model cannot reach: a sigmoid never gives 200."""

from __future__ import annotations

from torch import Tensor
from torch.autograd.graph import Node

from ..facts import Place
from .graph import RESHAPES, name_of, saved_tensor, shape_of, skip
from .loss_input import Feeder, LossInput

__all__ = ["ERRORS", "bounded_output"]

ERRORS = frozenset({"Abs", "HuberLoss", "MseLoss", "SmoothL1Loss"})
"""Operators that compare an output with a target of the same kind."""

_BOUNDS = {"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0)}


def bounded_output(node: Node, place: Place | None) -> LossInput | None:
    """Return how many targets of an error lie outside of what its prediction can be.

    Args:
        node: one of :data:`ERRORS`; its saved tensors are read.
        place: where backward was called.

    Returns:
        An input of the kind ``"Bounded"``, or ``None`` where the prediction is no bounded
        activation as it is, or the target is not known.
    """
    found = _compared(node)
    if found is None:
        return None
    maker, target = found
    bounds = _BOUNDS[name_of(maker)]
    low, high = target.detach().aminmax()
    beyond = ((target < bounds[0]) | (target > bounds[1])).sum()
    return LossInput(
        loss="Bounded",
        feeders=(Feeder(op=name_of(maker), low=bounds[0], high=bounds[1]),),
        shape=shape_of(maker) or (),
        labels=target.numel(),
        beyond=int(beyond),
        low=float(low),
        high=float(high),
        place=place,
    )


def _compared(node: Node) -> tuple[Node, Tensor] | None:
    """The activation that made the prediction, and the target."""
    below = node.next_functions[0][0] if node.next_functions else None
    difference = below if name_of(node) == "Abs" and below is not None else None
    if difference is not None:
        below = _only_side(difference)
    elif len([side for side, _ in node.next_functions if side is not None]) != 1:
        return None  # the target takes a gradient too
    maker = skip(below, RESHAPES)
    if maker is None or name_of(maker) not in _BOUNDS:
        return None
    target = (
        saved_tensor(node, "target") if difference is None else _other_side(node, difference, maker)
    )
    known = target is not None and target.numel() > 0 and not target.is_meta
    return (maker, target) if target is not None and known else None


def _only_side(difference: Node) -> Node | None:
    sides = [side for side, _ in difference.next_functions]
    known = [side for side in sides if side is not None]
    single = name_of(difference) == "Sub" and len(sides) == 2 and len(known) == 1
    return known[0] if single else None


def _other_side(error: Node, difference: Node, maker: Node) -> Tensor | None:
    """The target of an absolute difference, from the difference and the prediction."""
    values, output = saved_tensor(error, "self"), saved_tensor(maker, "result")
    if values is None or output is None or values.numel() != output.numel():
        return None
    values, output = values.detach(), output.detach().reshape(values.shape)
    first = difference.next_functions[0][0] is not None
    return output - values if first else output + values

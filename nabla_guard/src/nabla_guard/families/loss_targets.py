"""What a loss saved of its targets."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor
from torch.autograd.graph import Node

from .ctc import ctc_input
from .graph import name_of, saved_int, saved_tensor, skip
from .loss_context import LossContext
from .loss_input import LossInput

__all__ = ["with_targets"]

_MEAN = 1
_AXIS_MAKERS = frozenset({"Index", "Unsqueeze", "View"})
_EXPAND = frozenset({"Expand"})


def with_targets(found: LossInput, node: Node, context: LossContext) -> LossInput:
    """Add what the loss saved of its targets; reads tensors.

    Args:
        found: what is known of the loss so far.
        node: the loss.
        context: what stands above it.
    """
    ctc = ctc_input(node) if found.loss == "CtcLoss" else None
    if ctc is not None:
        return replace(found, labels=ctc.labels, blanks=ctc.blanks, input_high=ctc.high)
    target = saved_tensor(node, "target")
    if target is None or not target.numel() or target.is_meta:
        return found
    target = target.detach()
    shape = _unbroadcast(target)
    found = replace(
        found,
        labels=target.numel(),
        target=shape,
        averaged=saved_int(node, "reduction") == _MEAN,
        explicit=_is_explicit(found, node, shape),
    )
    if found.loss.startswith("NllLoss"):
        return _with_classes(found, node, target, context)
    return _with_range(found, node, target, context)


def _with_classes(found: LossInput, node: Node, target: Tensor, context: LossContext) -> LossInput:
    ignored = saved_int(node, "ignore_index")
    given = saved_tensor(node, "self")
    below = node.next_functions[0][0] if node.next_functions else None
    return replace(
        found,
        ignored=int((target == ignored).sum()) if ignored is not None else 0,
        input_high=None if given is None else float(given.detach().amax()),
        partition=below is not None and context.takes_partition(below),
    )


def _with_range(found: LossInput, node: Node, target: Tensor, context: LossContext) -> LossInput:
    low, high = map(float, target.aminmax())
    rows = target.sum(1) if target.dim() == 2 and target.shape[1] > 1 else None
    one_hot = rows is not None and bool(((rows - 1).abs() < 1e-6).all())
    found = replace(found, low=low, high=high, one_hot=one_hot)
    if low >= 0 and high <= 1 or not found.loss.startswith("BinaryCrossEntropy"):
        return found
    counted = context.counted(node, target)
    if counted is None or not counted.numel():
        return replace(found, low=None, high=None)
    low, high = map(float, counted.aminmax())
    return replace(found, low=low, high=high)


def _is_explicit(found: LossInput, node: Node, target: tuple[int, ...]) -> bool:
    """Whether the program gave each side an axis of its own: what is not reduced at once, was made
    by a new axis, or has a batch that both sides share, is a matrix of pairs by intention."""
    if found.given == found.shape:
        return False
    shared = len(found.given) > 2 and found.given[0] == target[0] == found.shape[0]
    uneven = len(found.shape) == 2 and found.shape[0] != found.shape[1]
    maker = skip(node.next_functions[0][0] if node.next_functions else None, _EXPAND)
    made = maker is not None and name_of(maker) in _AXIS_MAKERS
    unreduced = saved_int(node, "reduction") == 0
    return shared or uneven or (made and unreduced)


def _unbroadcast(target: Tensor) -> tuple[int, ...]:
    """Shape before an ``expand``: an expanded axis has stride zero."""
    return tuple(
        1 if stride == 0 else length
        for length, stride in zip(target.shape, target.stride(), strict=True)
    )

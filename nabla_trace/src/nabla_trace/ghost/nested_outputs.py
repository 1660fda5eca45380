"""Outputs of one call that are made from each other, as the two states of a recurrent cell are."""

from __future__ import annotations

from torch import Tensor
from torch.autograd.graph import Node

from .call import Path, replaced, tensors_in

__all__ = ["told_apart"]

_MOST_NODES = 64


def told_apart(out: object) -> object:
    """Return the outputs of a call such that the gradient of each is its own.

    What arrives at an output that another output was made from holds the way through that one, too:
    running the call again would count this way twice. Views of the outputs are not made from each
    other. Outputs that are independent anyway are returned as they are.
    """
    if type(out) not in (tuple, list):  # torch's own kinds of tuples cannot be made anew
        return out
    nodes = [t.grad_fn for _, t in tensors_in((out,), {}) if t.grad_fn is not None]
    if len(nodes) < 2 or not _are_nested(nodes):
        return out

    def viewed(path: Path, tensor: Tensor) -> Tensor:
        return tensor if tensor.grad_fn is None else tensor.view_as(tensor)

    return replaced((out,), {}, viewed)[0][0]


def _are_nested(nodes: list[Node]) -> bool:
    """Whether one of the nodes lies close behind another."""
    wanted = set(nodes)
    for start in nodes:
        queue, seen = [start], {start}
        while queue and len(seen) < _MOST_NODES:
            for child, _ in queue.pop(0).next_functions:
                if child is not None and child not in seen:
                    if child in wanted:
                        return True
                    seen.add(child)
                    queue.append(child)
    return False

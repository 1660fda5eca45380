"""Which axis a log-likelihood by hand takes for the classes: one entry of each row is picked."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import Node

from .graph import name_of, saved_int, saved_tensor

__all__ = ["PICKS", "picked_axis"]

PICKS = frozenset({"Gather", "Index"})
"""Operators by which programs pick the entry of the right class."""


def picked_axis(node: Node, shape: tuple[int, ...]) -> int | None:
    """Return the axis along which ``node`` takes exactly one entry of each row, or ``None``.

    Args:
        node: ``scores.gather(1, y[:, None])`` or ``scores[torch.arange(n), y]``.
        shape: of ``scores``, two axes of different length: in a square matrix rows and columns may
            both be samples.
    """
    if len(shape) != 2 or shape[0] == shape[1]:
        return None
    if name_of(node) == "Gather":
        index, axis = saved_tensor(node, "index"), saved_int(node, "dim")
        if index is None or axis is None:
            return None
        axis %= 2
        return axis if index.shape[axis] == 1 and index.shape[1 - axis] == shape[1 - axis] else None
    rows, columns = (*_indices(node), None, None)[:2]
    if rows is None or columns is None or rows.shape != (shape[0],):
        return None
    return 1 if torch.equal(rows, torch.arange(shape[0], device=rows.device)) else None


def _indices(node: Node) -> tuple[Tensor | None, ...]:
    try:
        found = getattr(node, "_saved_indices", ())
    except RuntimeError:  # freed
        return ()
    return tuple(found) if isinstance(found, (tuple, list)) else ()

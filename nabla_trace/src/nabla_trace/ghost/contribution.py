"""What one call contributes to the per-sample gradients of one of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .call import Call, Origin
from .layout import Layout, StructureDiffers
from .sources import RowSource

__all__ = ["Contribution", "LayerRule", "common_dtype", "rows_of", "sum_to"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """Rows of one tracked argument.

    Attributes:
        origin: the argument.
        source: its rows.
        own: layout of an argument that has a slice per sample itself (an expanded token, say); the
            rows are then the gradients of these slices.
    """

    origin: Origin
    source: RowSource
    own: Layout | None = None


LayerRule = Callable[[Call, Tensor, int], Iterator[Contribution] | None]
"""Gets the call, the gradient of its output in the layout of the call and the budget in elements;
returns ``None`` when the call has a form that it does not know."""


def common_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the dtype to compute in: that of the operands, at least float32."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.dtype is not dtype and tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def rows_of(tensor: Tensor, layout: Layout | None, samples: int) -> Tensor:
    """Return ``tensor`` with the samples in front.

    Raises:
        StructureDiffers: it has no axis of samples.
    """
    if layout is None:
        raise StructureDiffers("a value that depends on the batch has no axis of samples")
    return layout.spread(tensor, samples)


def sum_to(spread: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Undo broadcasting for each sample: ``[N, *given]`` to ``[N, *shape]``; ``None`` if it cannot.

    Args:
        spread: gradient of a broadcast result, samples in front.
        shape: shape of the operand that was broadcast.
    """
    extra = spread.dim() - 1 - len(shape)
    if extra < 0:
        return None
    summed = spread.sum(tuple(range(1, extra + 1))) if extra else spread
    for axis, size in enumerate(shape, 1):
        if summed.shape[axis] == size:
            continue
        if size != 1:
            return None
        summed = summed.sum(axis, keepdim=True)
    return summed

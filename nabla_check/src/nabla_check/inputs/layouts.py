"""The same values in other memory: what callers hand over without thinking of it."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .layout_names import Layout

__all__ = ["changes_memory", "copy_as_is", "layout_of", "relayout", "shares_memory"]

_LONGEST_OFFSET = 8

_FILLER = 3.5
"""Written between the elements, so that a reader that ignores strides gets wrong values."""


def copy_as_is(tensor: torch.Tensor) -> torch.Tensor:
    """Return a detached copy with the same strides, also where elements overlap.

    It starts behind the storage's begin where ``tensor`` does, if less far.
    """
    source = tensor.detach()
    if source.layout != torch.strided or (source.is_contiguous() and not source.storage_offset()):
        return source.clone()
    span = 1 + sum(
        (size - 1) * step for size, step in zip(source.shape, source.stride(), strict=True)
    )
    if source.numel() == 0:
        return source.clone()
    offset = min(source.storage_offset(), _LONGEST_OFFSET)
    memory = source.new_full((offset + span,), _FILLER)
    memory[offset:] = torch.as_strided(source, (span,), (1,))
    return torch.as_strided(memory, source.shape, source.stride(), offset)


def shares_memory(tensor: torch.Tensor, others: Iterable[torch.Tensor]) -> bool:
    """Whether ``tensor`` lies in the same storage as one of ``others``."""
    memory = tensor.untyped_storage().data_ptr()
    return any(other.untyped_storage().data_ptr() == memory for other in others)


def changes_memory(tensor: torch.Tensor, layout: Layout) -> bool:
    """Whether ``layout`` differs from contiguous memory for a tensor of this shape."""
    if layout == "contiguous" or tensor.numel() < 2 or tensor.layout != torch.strided:
        return False
    sides = [size for size in tensor.shape if size > 1]
    if layout == "channels_last":
        return tensor.dim() >= 3 and tensor.shape[1] > 1 and max(tensor.shape[2:]) > 1
    return len(sides) >= 2 if layout in ("transposed", "sliced", "rows") else True


def layout_of(tensor: torch.Tensor) -> Layout:
    """Name the layout whose memory is most like that of ``tensor``."""
    if tensor.is_contiguous():
        return "contiguous"
    if 0 in tensor.stride():
        return "expanded"
    axes = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride()[axis])
    if tensor.permute(axes).is_contiguous():
        return "transposed"
    return "sliced" if tensor.stride()[-1] == 1 else "strided"


def relayout(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return the values of ``tensor`` in other memory.

    ``transposed`` reverses the order of the axes in memory, ``strided`` leaves gaps between the
    elements and starts behind the storage's begin, ``sliced`` leaves gaps between the rows,
    ``channels_last`` moves the second axis behind the others, ``expanded`` repeats the first
    element of every axis with stride 0, ``rows`` the first slice along the first axis (both change
    the values).
    """
    if not changes_memory(tensor, layout):
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    source = tensor.detach()
    if layout == "transposed":
        axes = tuple(reversed(range(source.dim())))
        return source.permute(axes).contiguous().permute(axes)
    if layout == "channels_last":
        return source.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "expanded":
        corner = source[(slice(0, 1),) * source.dim()].clone()
        return corner.expand(source.shape)
    if layout == "rows":
        return source[:1].clone().expand(source.shape)
    return _with_gaps(source, between_rows=layout == "sliced")


def _with_gaps(source: torch.Tensor, *, between_rows: bool) -> torch.Tensor:
    *rows, side = source.shape
    width = side + 3 if between_rows else 2 * side + 1
    memory = source.new_full((*rows, width), _FILLER)
    view = memory[..., 1 : side + 1] if between_rows else memory[..., 1::2]
    view.copy_(source)
    return view

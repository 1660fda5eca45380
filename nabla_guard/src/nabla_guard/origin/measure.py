"""Numbers about a birth: what went in at the first bad element, and in which range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .states import fresh_mask, limits_of, values_of

__all__ = ["birth_index", "index_in", "mask_like", "operands_at", "range_of"]

_MAX_OPERANDS = 4


def operands_at(
    inputs: Sequence[Tensor], output: Tensor, index: tuple[int, ...]
) -> tuple[float, ...]:
    """Return the inputs' values at one element of a pointwise result; empty where none match."""
    found = []
    for tensor in inputs[:_MAX_OPERANDS]:
        values = values_of(tensor.detach())
        if values is None or output.layout is not torch.strided or output.is_complex():
            continue
        try:
            found.append(float(values.expand(output.shape)[index]))
        except RuntimeError:
            return ()
    return tuple(found)


def birth_index(inputs: Sequence[Tensor], output: Tensor) -> tuple[int, ...]:
    """Return the first element that is bad where the inputs are finite, else the first NaN.

    Returns:
        The index; empty where neither exists, such as for an infinity made of infinities.
    """
    values = values_of(output.detach())
    if values is None or values.shape != output.shape:
        return ()
    same = [tensor for tensor in inputs if tensor.shape == output.shape]
    fresh = fresh_mask(same, output) if same else None
    mask = values.isnan() if fresh is None else fresh
    found = mask.nonzero()
    return tuple(found[0].tolist()) if found.numel() else ()


def index_in(whole: Tensor, part: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return where an element of a view lies in the tensor of which it shows a part.

    Returns:
        The index; empty where the larger tensor does not lie in memory row by row.
    """
    if whole is part:
        return index
    if not whole.is_contiguous():
        return ()
    offset = int(part.storage_offset()) - int(whole.storage_offset())
    offset += sum(place * step for place, step in zip(index, part.stride(), strict=True))
    found = []
    for size in reversed(whole.shape):
        offset, place = divmod(offset, size)
        found.append(place)
    return tuple(reversed(found))


def range_of(inputs: Sequence[Tensor]) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value of all floating-point inputs."""
    limits = [found for tensor in inputs if (found := limits_of(tensor)) is not None]
    known = [found for found in limits if not math.isnan(found[0])]
    if not known:
        return None, None
    return min(low for low, _ in known), max(high for _, high in known)


def mask_like(inputs: Sequence[Tensor]) -> bool:
    """Whether the only floating-point input is constant and holds zeros and ones, nothing else."""
    if any(tensor.requires_grad for tensor in inputs):
        return False  # a saturated sigmoid or softmax looks the same
    floats = [found for tensor in inputs if (found := values_of(tensor.detach())) is not None]
    if len(floats) != 1:
        return False
    zeros, ones = floats[0] == 0, floats[0] == 1
    return bool((zeros | ones).all()) and bool(zeros.any()) and bool(ones.any())

"""Numbers about a birth: what went in at the first bad element, in which range, which sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .states import fresh_mask, limits_of, values_of

__all__ = ["birth_index", "mask_like", "operands_at", "range_of", "sample_at"]

_MAX_OPERANDS = 4


def sample_at(
    index: tuple[int, ...],
    shape: tuple[int, ...],
    batch: int,
    inputs: Sequence[Tensor] | None = None,
) -> int | None:
    """Return the position along the batch axis, when the first axis counts samples.

    Args:
        index: position of the element.
        shape: shape of its tensor.
        batch: number of samples in the batch; 0 when not known. A first axis that is a multiple of
            it, with more axes behind, holds the positions of each sample one after the other.
        inputs: what the tensor was made from, if an op made it: one of them must have an axis of
            that length, else the samples were reduced away.
    """
    if not index or not batch or len(index) != len(shape):
        return None
    if inputs and not any(shape[0] in tensor.shape[:-1] or _is_line(tensor) for tensor in inputs):
        return None
    if shape[0] == batch:
        return index[0]
    if shape[0] > batch and shape[0] % batch == 0 and len(shape) > 1:
        return index[0] // (shape[0] // batch)
    return None


def _is_line(tensor: Tensor) -> bool:
    return tensor.dim() < 2


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

"""A tensor of the reference, with what is asked of it for every candidate dtype."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Exact", "norm", "top"]

_SAMPLE = 4096
_LONGEST = 2**31 - 1
"""Entries that a product of vectors may have."""

_SAFE = 1e18
"""Below this, squares can be summed in float32."""


class Exact:
    """A tensor that counts as exact.

    Its size and range do not depend on the dtype that it is compared with: they are measured when
    they are first asked for, and once.

    Args:
        tensor: any shape.
        highest: its largest absolute value, where that is known.
    """

    def __init__(self, tensor: Tensor, highest: float | None = None) -> None:
        self.tensor = tensor
        if highest is not None:
            self.highest = highest

    @cached_property
    def highest(self) -> float:
        """Largest absolute value; NaN if there is a NaN, 0 for nothing."""
        return top(self.tensor)

    @cached_property
    def size(self) -> float:
        """L2 norm."""
        return norm(self.tensor)

    @cached_property
    def sample(self) -> Tensor:
        """Absolute values, evenly spread."""
        flat = self.tensor.reshape(-1)
        return flat[:: max(1, flat.numel() // _SAMPLE)].abs()


def top(tensor: Tensor) -> float:
    """Return the largest absolute value; NaN if there is a NaN, 0 for nothing."""
    if not tensor.numel():
        return 0.0
    low, high = torch.aminmax(tensor)
    return max(-float(low), float(high))


def norm(tensor: Tensor) -> float:
    """Return the L2 norm, in float32 where its squares fit."""
    if tensor.dtype in (torch.float32, torch.float64) and tensor.numel() <= _LONGEST:
        flat = tensor.reshape(-1)  # a product reads memory at its full speed, a norm does not
        size = math.sqrt(torch.dot(flat, flat))
    else:
        wide = torch.float32 if tensor.itemsize < 4 else None
        size = float(torch.linalg.vector_norm(tensor, dtype=wide))
    if 1.0 / _SAFE < size < _SAFE or size == 0.0 and tensor.dtype is torch.float64:
        return size
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))

"""How far two ways of computing the same number may differ."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["agrees", "autocast_dtype", "square_of", "tolerance_of"]

_LIMITS = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}
_FLOORS = {torch.float64: 1e-26, torch.float32: 1e-11, torch.float16: 1e-5, torch.bfloat16: 1e-3}
_NARROW = (torch.float16, torch.bfloat16)
_LONGEST = 2**31 - 1
"""Entries that a product of vectors may have."""


def autocast_dtype() -> torch.dtype | None:
    """Return the dtype in which matrices are multiplied here; ``None`` without autocast."""
    kinds = [kind for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)]
    return torch.get_autocast_dtype(kinds[0]) if kinds else None


def tolerance_of(dtype: torch.dtype, cast: torch.dtype | None = None) -> tuple[float, float]:
    """Return the relative limit, and the share of the whole gradient that is rounding noise.

    Args:
        dtype: of the parameter.
        cast: of the computation, where autocast narrows it.
    """
    worst = dtype if cast is None or cast.itemsize >= dtype.itemsize else cast
    return _LIMITS.get(worst, 1e-3), _FLOORS.get(worst, 1e-11)


def square_of(tensor: Tensor) -> Tensor:
    """Return the squared norm of a gradient, without a copy in higher precision."""
    values = tensor.coalesce().values() if tensor.is_sparse else tensor.detach()
    if values.dtype in _NARROW or values.numel() > _LONGEST:
        wide = torch.float32 if values.dtype in _NARROW else None
        norm: Tensor = torch.linalg.vector_norm(values, dtype=wide)
        return norm.square()
    flat = values.reshape(-1)
    return torch.dot(flat, flat)  # reads memory at its full speed; a norm does not


def agrees(
    value: float, truth: float, *, scale: float, whole: float, limit: tuple[float, float]
) -> bool:
    """Whether two squared norms agree.

    A parameter whose true gradient is zero (the bias of a key, say) has a gradient of rounding
    noise, which two ways of computing need not share: what is below the noise of the whole gradient
    is not compared.

    Args:
        value: one of them.
        truth: the other.
        scale: size of the terms that were added up.
        whole: squared norm of the whole gradient.
        limit: see :func:`tolerance_of`.
    """
    relative, floor = limit
    return abs(value - truth) <= relative * scale + floor * whole

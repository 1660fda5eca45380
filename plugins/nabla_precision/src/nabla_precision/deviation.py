"""How far numbers in a dtype are from the exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .result import Headroom

__all__ = [
    "Deviation",
    "gradient_error",
    "headroom",
    "is_sparse_error",
    "loss_scale_error",
    "norm",
    "output_deviation",
    "top",
]

_LARGEST_REAL = 3e38
"""What is larger stands for "minus infinity" in masks: float32 does not hold it either."""

_RELEVANT = 1e-6
"""Entries below this share of the largest do not matter to a gradient."""

_STRUCTURAL_ZERO = 1e10
"""An error of so many eps: the exact value is zero, and float64 shows its own rounding."""

_SAMPLE = 4096
_FEW = 0.02
_SAFE = 1e18
"""Below this, squares can be summed in float32."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """Relative error in the L2 norm, and whether anything left the range."""

    error: float
    overflows: bool


def top(tensor: Tensor) -> float:
    """Return the largest absolute value; NaN if there is a NaN, 0 for nothing."""
    if not tensor.numel():
        return 0.0
    low, high = torch.aminmax(tensor)
    return max(-float(low), float(high))


def output_deviation(
    found: Sequence[Tensor], exact: Sequence[Tensor], tops: Sequence[float], dtype: torch.dtype
) -> Deviation:
    """Return the worst deviation of the outputs, beyond the rounding of the exact result itself.

    A result that is the exact one, rounded, has the error zero; where that rounding alone loses
    more than a few digits, because the numbers are too small for the dtype, it counts.

    Args:
        found: outputs in ``dtype``.
        exact: outputs in the reference.
        tops: largest absolute value of each of those.
        dtype: the candidate.
    """
    parts = [
        _one(candidate, truth, highest, dtype)
        for candidate, truth, highest in zip(found, exact, tops, strict=True)
    ]
    known = [part.error for part in parts if not math.isnan(part.error)]
    return Deviation(max(known, default=math.nan), any(part.overflows for part in parts))


def gradient_error(
    found: Tensor | None, exact: Tensor | None, natural: float, dtype: torch.dtype
) -> float:
    """Return the error of a gradient over the larger of its norm and its natural norm.

    Args:
        found: gradient in ``dtype``.
        exact: gradient in the reference.
        natural: norm that it has where nothing cancels between samples; 0 if not known.
        dtype: the candidate.
    """
    if found is None or exact is None or not exact.numel():
        return math.nan
    size = max(norm(exact), natural)
    if size == 0.0 or not math.isfinite(size):
        return math.nan
    return norm(_difference(found, exact, dtype)) / size


def is_sparse_error(
    found: Sequence[Tensor], exact: Sequence[Tensor], dtype: torch.dtype, limit: float
) -> bool:
    """Whether only a few entries of each output are off: those on the edge of a jump."""
    for candidate, truth in zip(found, exact, strict=True):
        if candidate.shape != truth.shape or not truth.numel():
            continue
        level = limit * norm(truth) / truth.numel() ** 0.5
        off = _difference(candidate, truth, dtype).abs() > level
        if not float(off.float().mean()) <= _FEW:
            return False
    return True


def headroom(exact: Sequence[Tensor], tops: Sequence[float], dtype: torch.dtype) -> Headroom:
    """Return how exact numbers lie in the range of ``dtype``; shares are those of a sample.

    Args:
        exact: tensors.
        tops: largest absolute value of each.
        dtype: the candidate.
    """
    limits = torch.finfo(dtype)
    count = over = small = flushed = 0
    for tensor, highest in zip(exact, tops, strict=True):
        if not highest > 0.0 or not tensor.numel():
            continue
        size = _sample(tensor) if highest < _LARGEST_REAL else _real(_sample(tensor))
        relevant = size > _RELEVANT * min(highest, _LARGEST_REAL)
        count += int(relevant.sum())
        over += int((size > limits.max).sum()) or int(limits.max < highest < _LARGEST_REAL)
        small += int((relevant & (size < limits.tiny)).sum())
        flushed += int((relevant & (size <= limits.smallest_normal * limits.eps / 2)).sum())
    total = max(1, count)
    largest = max((value for value in tops if 0.0 < value < _LARGEST_REAL), default=0.0)
    return Headroom(
        overflow_share=min(1.0, over / total),
        subnormal_share=(small - flushed) / total,
        flushed_share=flushed / total,
        bits_left=math.log2(limits.max / largest) if largest > 0.0 else math.nan,
    )


def loss_scale_error(
    exact: Sequence[Tensor], tops: Sequence[float], dtype: torch.dtype, scale: float
) -> float:
    """Return the share of a gradient's norm that is lost in ``dtype`` under a loss scale."""
    highest = max(tops, default=0.0)
    if _RELEVANT * highest * scale > float(torch.finfo(dtype).tiny):
        return 0.0  # what matters is a normal number of the dtype
    size = math.hypot(*(norm(tensor) for tensor in exact))
    if size == 0.0:
        return 0.0
    scaled = [tensor.double() * scale for tensor in exact]
    lost = math.hypot(*(norm(tensor - tensor.to(dtype)) for tensor in scaled))
    return lost / scale / size


def _one(candidate: Tensor, truth: Tensor, highest: float, dtype: torch.dtype) -> Deviation:
    if candidate.shape != truth.shape or not truth.numel():
        return Deviation(math.nan, False)
    if not highest < _LARGEST_REAL:  # true for NaN too
        real = truth.abs() < _LARGEST_REAL
        truth, candidate = torch.where(real, truth, 0.0), torch.where(real, candidate, 0.0)
        highest = top(truth)
    limits = torch.finfo(dtype)
    size, off = norm(truth), norm(_difference(candidate, truth, dtype))
    if not math.isfinite(off) and (highest > limits.max or not math.isfinite(top(candidate))):
        return Deviation(math.inf, True)
    if size == 0.0:
        return Deviation(math.nan, False)
    eps, error = float(limits.eps), off / size
    if error > _STRUCTURAL_ZERO * eps:
        return Deviation(math.nan, False)
    if highest > limits.tiny / eps:
        return Deviation(error, False)
    lost = norm(truth - truth.to(dtype)) / size
    return Deviation(error if lost <= eps else max(error, lost), False)


def _difference(found: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance from the exact result, rounded.

    Two numbers of one dtype that are near each other have a difference that is exact in it.
    """
    return found.to(dtype) - exact.to(dtype)


def norm(tensor: Tensor) -> float:
    """Return the L2 norm, in float32 where its squares fit."""
    wide = torch.float32 if tensor.itemsize < 4 else None
    size = float(torch.linalg.vector_norm(tensor, dtype=wide))
    if 1.0 / _SAFE < size < _SAFE or size == 0.0 and tensor.dtype is torch.float64:
        return size
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))


def _sample(tensor: Tensor) -> Tensor:
    """Return absolute values, evenly spread."""
    flat = tensor.reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)].abs()


def _real(size: Tensor) -> Tensor:
    return torch.where(size < _LARGEST_REAL, size, 0.0)

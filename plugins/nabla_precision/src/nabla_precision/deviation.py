"""How far numbers in a dtype are from the exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .exact import Exact, norm, top
from .result import Headroom

__all__ = [
    "Deviation",
    "gradient_error",
    "headroom",
    "is_sparse_error",
    "loss_scale_error",
    "output_deviation",
]

_LARGEST_REAL = 3e38
"""What is larger stands for "minus infinity" in masks: float32 does not hold it either."""

_RELEVANT = 1e-6
"""Entries below this share of the largest do not matter to a gradient."""

_STRUCTURAL_ZERO = 1e10
"""An error of so many eps: the exact value is zero, and float64 shows its own rounding."""

_FEW = 0.02


@dataclass(frozen=True, slots=True)
class Deviation:
    """Relative error in the L2 norm, and whether anything left the range."""

    error: float
    overflows: bool


def output_deviation(
    found: Sequence[Tensor], exact: Sequence[Exact], dtype: torch.dtype
) -> Deviation:
    """Return the worst deviation of the outputs, beyond the rounding of the exact result itself.

    A result that is the exact one, rounded, has the error zero; where that rounding alone loses
    more than a few digits, because the numbers are too small for the dtype, it counts.

    Args:
        found: outputs in ``dtype``.
        exact: outputs in the reference.
        dtype: the candidate.
    """
    parts = [_one(candidate, truth, dtype) for candidate, truth in zip(found, exact, strict=True)]
    known = [part.error for part in parts if not math.isnan(part.error)]
    return Deviation(max(known, default=math.nan), any(part.overflows for part in parts))


def gradient_error(
    found: Tensor | None, exact: Exact | None, natural: float, dtype: torch.dtype
) -> float:
    """Return the error of a gradient over the larger of its norm and its natural norm.

    Args:
        found: gradient in ``dtype``.
        exact: gradient in the reference.
        natural: norm that it has where nothing cancels between samples; 0 if not known.
        dtype: the candidate.
    """
    if found is None or exact is None or not found.numel():
        return math.nan
    size = max(exact.size, natural)
    if size == 0.0 or not math.isfinite(size):
        return math.nan
    return norm(_difference(found, exact.tensor, dtype)) / size


def is_sparse_error(
    found: Sequence[Tensor], exact: Sequence[Exact], dtype: torch.dtype, limit: float
) -> bool:
    """Whether only a few entries of each output are off: those on the edge of a jump."""
    for candidate, truth in zip(found, exact, strict=True):
        if candidate.shape != truth.tensor.shape or not candidate.numel():
            continue
        level = limit * truth.size / candidate.numel() ** 0.5
        off = _difference(candidate, truth.tensor, dtype).abs() > level
        if not float(off.float().mean()) <= _FEW:
            return False
    return True


def headroom(exact: Sequence[Exact], dtype: torch.dtype) -> Headroom:
    """Return how exact numbers lie in the range of ``dtype``; shares are those of a sample.

    Args:
        exact: tensors.
        dtype: the candidate.
    """
    limits = torch.finfo(dtype)
    count = over = small = flushed = 0
    for one in exact:
        highest = one.highest
        if not highest > 0.0 or not one.tensor.numel():
            continue
        size = one.sample if highest < _LARGEST_REAL else _real(one.sample)
        relevant = size > _RELEVANT * min(highest, _LARGEST_REAL)
        count += int(relevant.sum())
        if not highest <= limits.max:
            over += int((size > limits.max).sum()) or int(limits.max < highest < _LARGEST_REAL)
        if _RELEVANT * min(highest, _LARGEST_REAL) < limits.tiny:
            least = limits.smallest_normal * limits.eps / 2
            small += int((relevant & (size < limits.tiny)).sum())
            flushed += int((relevant & (size <= least)).sum())
    total = max(1, count)
    largest = max((o.highest for o in exact if 0.0 < o.highest < _LARGEST_REAL), default=0.0)
    return Headroom(
        overflow_share=min(1.0, over / total),
        subnormal_share=(small - flushed) / total,
        flushed_share=flushed / total,
        bits_left=math.log2(limits.max / largest) if largest > 0.0 else math.nan,
    )


def loss_scale_error(exact: Sequence[Exact], dtype: torch.dtype, scale: float) -> float:
    """Return the share of a gradient's norm that is lost in ``dtype`` under a loss scale."""
    highest = max((one.highest for one in exact), default=0.0)
    if _RELEVANT * highest * scale > float(torch.finfo(dtype).tiny):
        return 0.0  # what matters is a normal number of the dtype
    size = math.hypot(*(one.size for one in exact))
    if size == 0.0:
        return 0.0
    scaled = [one.tensor.double() * scale for one in exact]
    lost = math.hypot(*(norm(tensor - tensor.to(dtype)) for tensor in scaled))
    return lost / scale / size


def _one(candidate: Tensor, exact: Exact, dtype: torch.dtype) -> Deviation:
    if candidate.shape != exact.tensor.shape or not candidate.numel():
        return Deviation(math.nan, False)
    if not exact.highest < _LARGEST_REAL:  # true for NaN too
        real = exact.tensor.abs() < _LARGEST_REAL
        exact = Exact(torch.where(real, exact.tensor, 0.0))
        candidate = torch.where(real, candidate, 0.0)
    limits = torch.finfo(dtype)
    truth, highest, size = exact.tensor, exact.highest, exact.size
    off = norm(_difference(candidate, truth, dtype))
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


def _real(size: Tensor) -> Tensor:
    return torch.where(size < _LARGEST_REAL, size, 0.0)

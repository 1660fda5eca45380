"""Elementwise comparison of tensors that should be equal up to rounding."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["Deviation", "deviation", "is_finite", "largest", "same_bits"]

Part = Literal["", "real", "imaginary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The worst element of a comparison.

    Attributes:
        index: of the element, one number per axis.
        got: value under test; of a complex number the part that differs more.
        expected: value that it should have.
        error: absolute difference.
        limit: largest difference that passes.
        scale: largest finite expected magnitude.
        part: which part of a complex number is shown, ``""`` for real ones.
    """

    index: tuple[int, ...]
    got: float
    expected: float
    error: float
    limit: float
    scale: float
    part: Part = ""

    @property
    def relative(self) -> float:
        """Error in units of ``scale``."""
        return self.error / self.scale if self.scale else math.inf


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold equal values, NaN equal to NaN."""
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if torch.equal(a, b):
        return True
    left, right = a.detach(), b.detach()
    if not (left.is_floating_point() or left.is_complex()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether there is neither NaN nor infinity; most often decided by one sum."""
    kept = tensor.detach()
    total = complex(kept.sum())
    return cmath.isfinite(total) or bool(torch.isfinite(kept).all())


def largest(tensor: torch.Tensor | None) -> float:
    """Largest finite magnitude, 0 for a missing or empty tensor."""
    if tensor is None or not tensor.numel():
        return 0.0
    kept = tensor.detach()
    if kept.is_floating_point():
        top = float(torch.linalg.vector_norm(kept, math.inf))
    else:
        top = float(kept.abs().amax())
    if math.isfinite(top):
        return top
    sizes = kept.abs()
    finite = sizes[torch.isfinite(sizes)]
    return float(finite.amax()) if finite.numel() else 0.0


def deviation(
    got: torch.Tensor, expected: torch.Tensor, *, relative: float, absolute: float = 0.0
) -> Deviation | None:
    """Return the worst element that differs by more than ``absolute + relative * scale``.

    Args:
        got: tensor under test, same shape as ``expected``.
        expected: the truth.
        relative: tolerance in units of the largest finite expected magnitude.
        absolute: tolerance in the tensors' own unit.
    """
    left, right = got.detach(), expected.detach()
    if not left.numel() or torch.equal(left, right):
        return None
    wide = torch.complex128 if left.is_complex() or right.is_complex() else torch.float64
    left, right = left.to(wide), right.to(wide)
    errors = (left - right).abs()
    errors = torch.where((left == right) | (left.isnan() & right.isnan()), 0.0, errors)
    errors = torch.nan_to_num(errors, nan=math.inf, posinf=math.inf)
    scale = largest(right)
    limit = absolute + relative * scale
    worst = int(errors.argmax())
    error = float(errors.flatten()[worst])
    if error <= limit:
        return None
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), errors.shape))
    part = _worse_part(left[index], right[index])
    return Deviation(
        index=index,
        got=_shown(left[index], part),
        expected=_shown(right[index], part),
        part=part,
        error=error,
        limit=limit,
        scale=scale,
    )


def _worse_part(got: torch.Tensor, expected: torch.Tensor) -> Part:
    """Return which part of a complex element differs more."""
    if not got.is_complex():
        return ""
    gap = got - expected
    return "imaginary" if float(gap.imag.abs()) > float(gap.real.abs()) else "real"


def _shown(element: torch.Tensor, part: Part) -> float:
    if not element.is_complex():
        return float(element)
    return float(element.imag if part == "imaginary" else element.real)

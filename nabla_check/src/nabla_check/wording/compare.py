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
    """Whether two tensors hold equal values, NaN equal to NaN; sparse ones in equal patterns."""
    if a.shape != b.shape or a.dtype is not b.dtype or a.layout is not b.layout:
        return False
    if a.layout is not torch.strided:
        pairs = zip(_parts(a.detach()), _parts(b.detach()), strict=True)
        return all(same_bits(left, right) for left, right in pairs)
    left, right = a.detach(), b.detach()
    if a.dtype is torch.complex32:
        left, right = _computable(left), _computable(right)
    if torch.equal(left, right):
        return True
    if not (left.is_floating_point() or left.is_complex()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def _computable(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` detached; complex32, for which torch has no arithmetic, as complex64."""
    kept = tensor.detach()
    return kept.to(torch.complex64) if kept.dtype is torch.complex32 else kept


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the dense tensors that a sparse or jagged one is made of."""
    if tensor.layout is torch.sparse_coo:
        ordered = tensor.coalesce()
        return ordered.indices(), ordered.values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    if tensor.layout is torch.jagged:
        return tensor.values(), tensor.offsets()  # type: ignore[attr-defined]
    return (tensor.to_dense(),)


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether there is neither NaN nor infinity; most often decided by one sum."""
    kept = tensor.detach() if tensor.dtype is not torch.complex32 else _computable(tensor)
    total = complex(kept.sum())
    return cmath.isfinite(total) or bool(torch.isfinite(kept).all())


def largest(tensor: torch.Tensor | None) -> float:
    """Largest finite magnitude, 0 for a missing or empty tensor."""
    if tensor is None or not tensor.numel():
        return 0.0
    kept = tensor.detach() if tensor.dtype is not torch.complex32 else _computable(tensor)
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
    left, right = _computable(got), _computable(expected)
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

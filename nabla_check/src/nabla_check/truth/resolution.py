"""How finely a dtype lets a derivative be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["Resolution", "resolution_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How finely a dtype lets a derivative be measured.

    Attributes:
        unit: unit roundoff spacing of the dtype.
        ladder: step sizes to try, relative to the operand's size.
        sharp: largest error bar, relative to the derivative, with which a step counts.
        tolerance: smallest relative deviation that is called a fault.
        one_sided: decreasing steps of the kink test.
    """

    unit: float
    ladder: tuple[float, ...]
    sharp: float
    tolerance: float
    one_sided: tuple[float, float, float]


_FLOAT64 = Resolution(
    unit=2.0**-52,
    ladder=(2.0**-13, 2.0**-17, 2.0**-20, 2.0**-26, 2.0**-29, 2.0**-32, 2.0**-9),
    sharp=1e-5,
    tolerance=1e-9,
    one_sided=(2.0**-16, 2.0**-18, 2.0**-20),
)
_FLOAT32 = Resolution(
    unit=2.0**-23,
    ladder=(2.0**-7, 2.0**-9, 2.0**-5, 2.0**-4),
    sharp=2e-2,
    tolerance=1e-3,
    one_sided=(2.0**-6, 2.0**-7, 2.0**-8),
)


def resolution_of(dtypes: Sequence[torch.dtype]) -> Resolution | None:
    """Return the resolution of the coarsest dtype, ``None`` when it has no room for differences."""
    if all(dtype in (torch.float64, torch.complex128) for dtype in dtypes):
        return _FLOAT64
    wide = (torch.float64, torch.complex128, torch.float32, torch.complex64)
    return _FLOAT32 if all(dtype in wide for dtype in dtypes) else None

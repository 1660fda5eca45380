"""Values to fill a tensor with: ordinary ones, and those that operators trip over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

__all__ = ["FILLS", "Fill", "fill", "fills_within", "is_generic"]

Fill = Literal[
    "normal",
    "uniform",
    "positive",
    "ones",
    "zeros",
    "integers",
    "ties",
    "mixed",
    "extremes",
    "subnormal",
]
FILLS: tuple[Fill, ...] = (
    "normal",
    "uniform",
    "positive",
    "integers",
    "ones",
    "zeros",
    "ties",
    "mixed",
    "extremes",
    "subnormal",
)
"""The simplest first: a generic point explains more than a special one."""

_GENERIC = ("normal", "uniform", "positive", "integers")
_SPECIAL: dict[str, tuple[Fill, ...]] = {
    "normal": ("ones", "zeros", "ties", "mixed", "extremes", "subnormal"),
    "uniform": ("ones", "zeros", "ties", "subnormal"),
    "positive": ("ones",),
}
"""Values that stay within what the caller's distribution promises."""

_Draw = Callable[[Sequence[int], torch.dtype, torch.Generator], torch.Tensor]


def fills_within(distribution: str) -> tuple[Fill, ...]:
    """Return ``distribution`` and the special values inside its domain."""
    own = next(name for name in FILLS if name == distribution)
    return (own, *_SPECIAL.get(distribution, ()))


def is_generic(name: Fill) -> bool:
    """Whether values of this kind avoid zeros, ties and the edges of the dtype."""
    return name in _GENERIC


def fill(
    name: Fill, shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Draw a contiguous tensor; the same values in every floating dtype, up to rounding.

    Args:
        name: kind of values.
        shape: sizes of the axes.
        dtype: of the result; integer and boolean dtypes get whole numbers from 0 to 9.
        generator: CPU generator, the only source of randomness.
    """
    if dtype.is_complex:
        real = dtype.to_real()
        parts = [fill(name, shape, real, generator) for _ in range(2)]
        if dtype is torch.complex32:  # torch.complex() knows no half
            wide = torch.complex(parts[0].float(), parts[1].float())
            return wide.to(dtype)
        return torch.complex(*parts)
    if name in ("ones", "zeros"):
        return torch.full(tuple(shape), float(name == "ones"), dtype=dtype)
    if name == "integers" or not dtype.is_floating_point:
        top = 2 if dtype is torch.bool else 10
        return torch.randint(0, top, tuple(shape), generator=generator).to(dtype)
    return _DRAWS[name](shape, dtype, generator).to(dtype)


def _unit(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(tuple(shape), dtype=torch.float64, generator=generator)


def _normal(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(tuple(shape), dtype=torch.float64, generator=generator)


def _uniform(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return 2 * _unit(shape, generator) - 1


def _positive(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _unit(shape, generator) + 0.5


def _ties(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(-2, 3, tuple(shape), generator=generator).to(torch.float64) / 2


def _mixed(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    spread = 4.0 if dtype is torch.float16 else 10.0
    powers = spread * _uniform(shape, dtype, generator)
    return _normal(shape, dtype, generator) * torch.exp2(powers)


def _extremes(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Large and small, but a polynomial of degree 7 in float32 (3 in float16) stays finite."""
    reach = 5.0 if dtype is torch.float16 else 16.0
    signs = torch.randint(0, 2, tuple(shape), generator=generator).to(torch.float64) * 2 - 1
    sizes = torch.randint(0, 3, tuple(shape), generator=generator).to(torch.float64) - 1
    return signs * torch.exp2(reach * sizes) * (1 + 0.25 * _unit(shape, generator))


def _subnormal(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """About half of the elements lie below the smallest normal number of the dtype."""
    tiny = torch.finfo(dtype).smallest_normal
    ordinary = _normal(shape, dtype, generator)
    chosen = _unit(shape, generator) < 0.5
    return torch.where(chosen, ordinary.sign() * tiny * _unit(shape, generator), ordinary)


_DRAWS: dict[str, _Draw] = {
    "normal": _normal,
    "uniform": _uniform,
    "positive": _positive,
    "ties": _ties,
    "mixed": _mixed,
    "extremes": _extremes,
    "subnormal": _subnormal,
}

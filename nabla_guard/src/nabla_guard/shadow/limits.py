"""Limits of the floating-point dtypes, and the options of a shadow sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

__all__ = [
    "LOW",
    "Schedule",
    "ShadowLimits",
    "dtype_name",
    "error_limit",
    "exp_limit",
    "roundoff",
    "smallest_normal",
]

LOW = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""The dtypes that have a shadow; a float64 value is its own."""

_ROUNDINGS = 64
_DIGITS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowLimits:
    """Limits of NUM111, NUM121 and NUM122.

    Attributes:
        conditioning_ratio: how many times the error must exceed what a change of all inputs by four
            roundings does to the same result in float64.
        cancellation_ratio: operands over result from which a sum or difference counts as cancelled.
        flushed_share: share of the non-zero float64 values that are zero or subnormal in the dtype.
        headroom_ratio: a float16 result must keep this factor away from the largest number.
        exp_share: share of the largest safe argument of ``exp`` that may be used.
    """

    conditioning_ratio: float = 8.0
    cancellation_ratio: float = 8.0
    flushed_share: float = 0.5
    headroom_ratio: float = 4.0
    exp_share: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """At which steps of a loop a sample is taken.

    Attributes:
        early_steps: steps of the loop, each sampled once.
        every_steps: steps between later samples; 0 takes none.
    """

    early_steps: tuple[int, ...] = (0, 1, 3, 7, 15, 63)
    every_steps: int = 400


def roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding, half the machine epsilon."""
    return torch.finfo(dtype).eps / 2


def error_limit(dtype: torch.dtype) -> float:
    """Return the relative error from which a result of this dtype is called wrong.

    Healthy layers stay below ten roundings; 64 are left to them, and at least a thousandth of the
    value: 1e-3 for float32, 0.031 for float16, 0.25 for bfloat16.
    """
    return max(_DIGITS, _ROUNDINGS * roundoff(dtype))


def exp_limit(dtype: torch.dtype) -> float:
    """Return the argument above which ``exp`` overflows: 88.7 in float32, 11.1 in float16."""
    return math.log(torch.finfo(dtype).max)


def smallest_normal(dtype: torch.dtype) -> float:
    """Return the smallest number of full precision: 6.1e-5 in float16, 1.2e-38 in float32."""
    return torch.finfo(dtype).tiny


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``"float16"`` for ``torch.float16``."""
    return str(dtype).removeprefix("torch.")

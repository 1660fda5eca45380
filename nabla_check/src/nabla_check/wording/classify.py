"""Names the pattern of a wrong gradient: factor, sign, transpose, lost block, one element …

Pure functions over the gradient under test and the true one; no operator is called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch

__all__ = ["Cause", "Pattern", "classify"]

Pattern = Literal[
    "missing",
    "sign",
    "factor",
    "transpose",
    "missing reduction",
    "non-finite",
    "one element",
    "boundary block",
    "zero rows",
    "offset",
    "rounding",
    "elements",
]

_SAME = 1e-6
"""Relative residual below which a pattern fits; numerical derivatives reach about 1e-8."""

_HINTS: dict[Pattern, str] = {
    "missing": "look for a None, a detach() or a no_grad() on the way to this input",
    "sign": "look for a swapped difference or a lost minus in backward",
    "factor": "look for a constant that is missing or doubled in backward (1/2, mean or sum)",
    "transpose": "look for a matrix product whose operand backward transposes the wrong way",
    "missing reduction": "sum the gradient over the axes that forward had broadcast",
    "non-finite": "look for a division, log or power at this input in backward",
    "one element": "look for an index that backward starts or ends one off, or writes twice",
    "boundary block": "look for a loop, mask or grid in backward that ends before the last block",
    "zero rows": "look for rows that backward skips: a mask, duplicate indices, an early end",
    "offset": "look for a term added in backward that forward does not have",
    "rounding": "look for a cast to a narrow dtype in backward, or a tensor saved in one",
    "elements": "compare backward with the derivative of forward at the named element",
}

_FEWEST = 4
"""Elements that are needed to recognise rounding."""

_DTYPE_STEPS = (("float32", 2.0**-24), ("float16", 2.0**-11), ("bfloat16", 2.0**-8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A pattern and one phrase that explains it."""

    pattern: Pattern
    text: str

    @property
    def hint(self) -> str:
        """Where such a pattern comes from in most operators."""
        return _HINTS[self.pattern]


def classify(got: torch.Tensor, expected: torch.Tensor, noise: float = _SAME) -> Cause:
    """Return the most specific pattern that explains ``got``.

    Args:
        got: gradient under test.
        expected: true gradient, same shape and dtype (float64 or complex128).
        noise: relative error of ``expected``, below which a pattern fits.
    """
    if not bool(torch.isfinite(got).all()):
        count = int((~torch.isfinite(got)).sum())
        return Cause(pattern="non-finite", text=f"{count} of {got.numel()} elements are not finite")
    if not bool((got != 0).any()):
        return Cause(pattern="missing", text="the gradient is zero everywhere")
    whole = _whole(got, expected, noise)
    if whole is not None:
        return whole
    scale = float(expected.abs().max())
    wrong = (got - expected).abs() > noise * scale
    return _local(got, expected, wrong) or _rest(got, expected, wrong, noise)


def _whole(got: torch.Tensor, expected: torch.Tensor, noise: float) -> Cause | None:
    factor = _factor(got, expected, noise)
    if factor is not None and expected.numel() > 1:
        if abs(factor + 1) < noise:
            return Cause(pattern="sign", text="the sign is flipped everywhere")
        if abs(factor - 1) > noise:
            return Cause(pattern="factor", text=f"constant factor {_ratio_text(factor)} everywhere")
    if got.dim() >= 2 and _fits(got, expected.transpose(-1, -2).reshape(got.shape), noise):
        return Cause(pattern="transpose", text="the last two axes are transposed")
    if factor is not None and abs(factor - 1) > noise:
        sign = abs(factor + 1) < noise
        text = "the sign is flipped" if sign else f"factor {_ratio_text(factor)}"
        return Cause(pattern="sign" if sign else "factor", text=text)
    return None


def _factor(got: torch.Tensor, expected: torch.Tensor, noise: float) -> float | None:
    power = float(expected.abs().square().sum())
    if power == 0:
        return None
    factor = float((got * expected.conj()).real.sum()) / power
    return factor if factor and _fits(got, factor * expected, noise) else None


def _fits(got: torch.Tensor, expected: torch.Tensor, noise: float) -> bool:
    limit = noise * float(got.abs().max())
    return bool(((got - expected).abs() <= limit).all())


def _ratio_text(factor: float) -> str:
    near = Fraction(factor).limit_denominator(16)
    if near and abs(float(near) - factor) < 1e-6 * abs(factor) and near.denominator > 1:
        return f"{factor:.6g} ({near})"
    return f"{factor:.6g}"


def _local(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> Cause | None:
    count = int(wrong.sum())
    if count == 0 or count == wrong.numel() or wrong.numel() == 1:
        return None
    if count == 1:
        index = tuple(int(i) for i in wrong.nonzero()[0])
        return Cause(pattern="one element", text=f"only element {list(index)} is wrong")
    for axis in range(wrong.dim()):
        size = wrong.shape[axis]
        rest = [other for other in range(wrong.dim()) if other != axis]
        lines = wrong.any(dim=rest) if rest else wrong
        places = lines.nonzero().flatten().tolist()
        if not 0 < len(places) < size:
            continue
        zero = not bool(got[wrong].any())
        if places == list(range(places[0], size)) and places[0] > 0:
            state = "missing" if zero else "wrong"
            text = f"the block from index {places[0]} on along axis {axis} is {state}"
            return Cause(pattern="boundary block", text=text)
        if zero:
            text = f"{len(places)} of {size} slices along axis {axis} are zero"
            return Cause(pattern="zero rows", text=text)
    return None


def _rest(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor, noise: float) -> Cause:
    difference = got - expected
    if wrong.numel() > 1 and _fits(difference, difference.mean().expand_as(difference), noise):
        return Cause(
            pattern="offset", text=f"a constant of {_number(difference.mean())} is added everywhere"
        )
    scale = float(expected.abs().max())
    relative = float(difference.abs().max()) / scale if scale else math.inf
    rounding = _rounded_to(got, relative) or _like_rounding(difference, expected, relative)
    if rounding:
        return Cause(pattern="rounding", text=rounding)
    count = int(wrong.sum()) or int((difference != 0).sum())
    return Cause(pattern="elements", text=f"{count} of {wrong.numel()} elements are wrong")


def _rounded_to(got: torch.Tensor, relative: float) -> str:
    """Name the narrow dtype that holds every element exactly: chance does not do that."""
    if got.is_complex() or int((got != got.round()).sum()) < _FEWEST:
        return ""
    for name, step in reversed(_DTYPE_STEPS):
        narrow = got.to(getattr(torch, name)).to(got.dtype)
        if relative < 4 * step and torch.equal(narrow, got):
            return f"all values are those of {name}: they were cast to it"
    return ""


def _like_rounding(difference: torch.Tensor, expected: torch.Tensor, relative: float) -> str:
    """Compare size and signs of the errors with rounding.

    Errors of 1e-8 have no other usual origin than float32. Those of the size of the 16-bit types
    have many (a wrong epsilon, a wrong constant, an iteration that has not converged), which move
    most elements the same way or are no fixed share of them.
    """
    name, step = _DTYPE_STEPS[0]
    if step / 16 < relative < 4 * step:
        return f"errors of {relative:.2g} look like a cast to, or a constant of, {name}"
    share = (difference / expected)[expected.abs() > 0.1 * expected.abs().max()].real
    moved = share[share != 0]
    if moved.numel() < 2 * _FEWEST:
        return ""
    up = float((moved > 0).double().mean())
    if not 0.25 <= up <= 0.75:
        return ""
    names = [n for n, s in _DTYPE_STEPS[1:] if s / 16 < relative and float(moved.abs().max()) < s]
    return (
        f"errors of {relative:.2g} have the size of {' or '.join(names)} rounding" if names else ""
    )


def _number(value: torch.Tensor) -> str:
    return f"{float(value.real):.6g}"

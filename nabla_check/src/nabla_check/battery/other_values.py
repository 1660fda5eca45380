"""Values around the given ones at which formulas go wrong: negative, zero, tied, whole, large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands
from ..truth.products import size_of
from .ties import all_tied
from .variation import Variation, is_composed, try_variation

__all__ = ["other_values"]

_SATURATING, _ONE_IN = 1000.0, 5
_STEP = 2.0**-10
_SPREAD = (0.1, 30.0)
"""Smallest and largest spread value, in units of the root mean square of the given ones."""
_DECADES = (math.log10(_SPREAD[0]), math.log10(_SPREAD[1]))


def other_values(exam: Examination) -> Iterator[Issue]:
    """Negative, larger, zero and tied values in one point; apart from each other where the
    operator's domain or a kink does not allow that. Code of somebody's own gets more."""
    if exam.candidate.gives_sparse:
        return  # which elements are kept, and so get a gradient, depends on the values
    mixed = yield from try_variation(exam, _mixed(exam))
    if exam.broken or is_composed(exam):
        return
    if mixed != "judged":
        yield from try_variation(exam, _negated(exam))
    if mixed == "rejected" and not exam.broken:
        yield from try_variation(exam, _with_special_values(exam))
    if exam.own_derivatives:
        yield from _values_of_own_code(exam)


def _values_of_own_code(exam: Examination) -> Iterator[Issue]:
    if not exam.broken:
        yield from try_variation(exam, _scaled_up(exam))
    if not exam.broken and _is_elementwise(exam):
        outcome = yield from try_variation(exam, _spread(exam, whole=True))
        if outcome != "judged" and not exam.broken:
            yield from try_variation(exam, _spread(exam, whole=False))
    if not exam.broken:
        yield from all_tied(exam)


def _is_elementwise(exam: Examination) -> bool:
    """Whether an element of an input moves one of each output: there all may grow at once. What
    mixes elements, as a solver does, may leave its domain without a word."""
    base = exam.baseline
    points = []
    for value in base.operands.originals():
        point = value.clone(memory_format=torch.contiguous_format)
        point.view(-1)[: min(1, point.numel())] *= 1 + _STEP
        points.append(point)
    try:
        moved = exam.candidate.values_at(tuple(points), base.outputs.live)
    except OperatorRaised:
        return False
    return all(
        new.shape == old.shape and int((new != old).sum()) <= len(points)
        for new, old in zip(moved, base.output_copies, strict=True)
    )


def _mixed(exam: Examination) -> Variation:
    values = _special(exam)
    for value in values:
        value.view(-1)[::2] *= -1.7
    variation = _variation(exam, values, "negative, zero, tied and large values mixed")
    return _growing(exam, variation, values)


def _growing(exam: Examination, variation: Variation, values: Sequence[torch.Tensor]) -> Variation:
    """Let ``values`` grow from the size of the given ones, where elements are mixed."""
    if not exam.own_derivatives:
        return variation
    return replace(variation, growth=partial(_at_share, exam, values))


def _at_share(exam: Examination, values: Sequence[torch.Tensor], share: float) -> Operands:
    pairs = zip(values, exam.operands.originals(), strict=True)
    return exam.operands.with_values(
        (x.detach() * (size_of(given) / size_of(x.detach())) ** (1 - share)).requires_grad_()
        for x, given in pairs
    )


def _negated(exam: Examination) -> Variation:
    return _variation(exam, [-1.7 * x for x in exam.operands.originals()], "negated values")


def _scaled_up(exam: Examination) -> Variation:
    """Some values at which an exponential overflows in float64: a stable forward bears them."""
    values = _copies(exam)
    for value in values:
        some = value.view(-1)[::_ONE_IN]
        if not value.is_complex() and bool((value < 0).any()) and bool((value > 0).any()):
            some.abs_()
            some[1::2] *= -1
        some.add_(some.sgn()).mul_(_SATURATING)
    setting = f"one in {_ONE_IN} values near {_SATURATING:g}"
    variation = _variation(exam, values, setting, coarse=True)
    return _growing(exam, variation, values)


def _spread(exam: Examination, *, whole: bool) -> Variation:
    """Values of many sizes, to meet the bounds of masks and branches; every second one a whole
    number, where a test for equality or a remainder goes wrong."""
    values = _copies(exam)
    for value in values:
        flat = value.view(-1)
        sizes = size_of(flat) * torch.logspace(*_DECADES, len(flat), dtype=torch.float64)
        sizes = sizes[torch.randperm(len(flat), generator=exam.generator)]
        if whole and not flat.is_complex():
            sizes[::2] = sizes[::2].ceil()
        flat.sgn_().mul_(sizes.to(dtype=flat.real.dtype, device=flat.device))
    words = f"values of {_SPREAD[0]:g} to {_SPREAD[1]:g} times the usual size"
    return _variation(exam, values, f"{words}, half of them whole" if whole else words)


def _with_special_values(exam: Examination) -> Variation:
    return _variation(exam, _special(exam), "zeros and ties among the values")


def _special(exam: Examination) -> list[torch.Tensor]:
    """Copies with a zero at the end, a tie at the start and a large value between."""
    values = _copies(exam)
    for value in values:
        flat = value.view(-1)
        if len(flat) >= 2:
            flat[-1] = 0.0
        if len(flat) >= 4:
            flat[2] = flat[0]
            flat[-2] = 30 * flat[-2]
    return values


def _copies(exam: Examination) -> list[torch.Tensor]:
    return [x.clone(memory_format=torch.contiguous_format) for x in exam.operands.originals()]


def _variation(
    exam: Examination, values: Sequence[torch.Tensor], setting: str, *, coarse: bool = False
) -> Variation:
    operands = exam.operands.with_values(value.requires_grad_() for value in values)
    return Variation(operands=operands, setting=setting, coarse=coarse)

"""All elements equal: how a gradient is shared among ties is free, its sum is not."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import Gradients
from ..rules import BACKWARD_MISMATCH
from ..truth.numerical import curve_along, ladder_of
from ..truth.oracle import glance, judge
from ..truth.products import alone, inner, projection, size_of
from ..truth.slopes import is_smooth
from ..wording.describe import number
from .domain import has_ordinary_gradients
from .variation import usable

__all__ = ["all_tied"]

_SETTING = "all elements of an input equal"
_SAME = 1e-6
_MOVES = 1e-3


def all_tied(exam: Examination) -> Iterator[Issue]:
    """Move all tied elements together (CHK201): a maximum of ties follows, whichever is chosen.

    Elementwise, every subgradient is right at a tie. Along their common direction the operator is
    smooth, and there the gradient has one value. A reference with the candidate's excuses it: what
    both call a gradient may be a surrogate.
    """
    values = tuple(_equal(x).requires_grad_() for x in exam.operands.originals())
    if exam.resolution is None or not any(x.numel() > 1 for x in values):
        return
    found = usable(exam, exam.operands.with_values(values), _SETTING)
    if found is None or not has_ordinary_gradients(exam, found[0]):
        return
    point, truth = found
    expected = None
    if exam.reference is not None and truth is not None:
        expected = exam.reference.vjp(truth.outputs, truth.values, point.cotangents)
    for which, value in enumerate(values):
        if value.numel() > 1 and not exam.failed(BACKWARD_MISMATCH):
            yield from _judge(exam, point, which, expected)


def _equal(given: torch.Tensor) -> torch.Tensor:
    """Return a copy filled with the smallest element that is not zero: in the operator's domain,
    and where the given values let a solver converge, so does it."""
    flat = given.detach().reshape(-1)
    nonzero = flat[flat != 0]
    chosen = nonzero[int(nonzero.abs().argmin())] if len(nonzero) else torch.zeros_like(given.sum())
    return chosen.detach().expand(given.shape).clone(memory_format=torch.contiguous_format)


def _judge(
    exam: Examination, point: Baseline, which: int, expected: Gradients | None
) -> Iterator[Issue]:
    value = point.operands.originals()[which]
    together = torch.full_like(value, size_of(value))
    directions = alone(which, len(point.values), together)
    analytic, scale = projection(point.gradients, directions)
    if expected is not None and abs(inner(expected, directions) - analytic) <= _SAME * scale:
        return
    curve, ladder = curve_along(exam, point, directions), ladder_of(exam)
    if glance(curve, analytic, scale, ladder) or not is_smooth(curve, ladder):
        return
    verdict = judge(curve, analytic, scale, ladder)
    if verdict.state != "differs" or abs(verdict.numeric) <= _MOVES * abs(analytic):
        return  # what a common move leaves as it was, as a deviation, is rounding at ties
    name = point.operands.live_names[which]
    yield exam.verdict(
        BACKWARD_MISMATCH,
        f"With {_SETTING}, the gradient of {name} along a common move of them all is "
        f"{number(verdict.analytic)}, by the numerical derivative {number(verdict.numeric)} "
        f"(error bar {verdict.bar:.2g}).",
        operand=name,
        setting=_SETTING,
        got=verdict.analytic,
        expected=verdict.numeric,
        error_bar=verdict.bar,
        cause="the shares of tied elements do not add up",
    )

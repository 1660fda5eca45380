"""The gradient of the baseline, or of any other point, held against the numerical oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands, Values
from ..wording.compare import is_finite
from .oracle import FINE, WIDE, Curve, Verdict, glance, judge, judge_by_the_way
from .products import alone, normal_like, projection, size_of, steps_for
from .resolution import Resolution
from .slopes import has_slopes, is_smooth

__all__ = ["NumericElements", "curve_along", "elements_of", "judge_point", "nearby", "point_at"]


_COARSE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericElements:
    """Elements of one gradient with their numerical values.

    Attributes:
        flat: flat indices into the operand.
        got: analytic elements.
        expected: numerical elements.
    """

    flat: torch.Tensor
    got: torch.Tensor
    expected: torch.Tensor


def curve_along(
    exam: Examination, point: Baseline, directions: Sequence[torch.Tensor | None]
) -> Curve:
    """Return the candidate along ``directions`` through ``point``; ``None`` keeps one still."""
    origins = point.operands.originals()  # a faulty operator may have written into point.values

    def evaluate(t: float) -> Sequence[torch.Tensor]:
        moved = tuple(
            origin.clone() if direction is None else torch.add(origin, direction, alpha=t)
            for origin, direction in zip(origins, directions, strict=True)
        )
        try:
            return exam.candidate.values_at(moved, point.outputs.live, operands=point.operands)
        except OperatorRaised:  # beyond the operator's domain, like a NaN
            return [torch.full_like(output, math.nan) for output in point.output_copies]

    width = sum(direction.numel() for direction in directions if direction is not None)
    return Curve(evaluate, point.cotangents, point.output_copies, width)


def ladder_of(exam: Examination, *, brief: bool = False) -> Resolution:
    """Return the oracle's resolution with the user's first step, if he gave one.

    ``brief`` keeps three step sizes, for points that are only tried by the way.

    Raises:
        RuntimeError: the precision has no numerical oracle; the caller must ask first.
    """
    if exam.resolution is None:
        raise RuntimeError("no numerical derivative in this precision")
    first = exam.options.finite_difference_epsilon
    ladder = exam.resolution.ladder if first is None else (first, *exam.resolution.ladder)
    return replace(exam.resolution, ladder=ladder[:3] if brief else ladder)


def judge_point(exam: Examination, point: Baseline, *, brief: bool = False) -> Verdict | None:
    """Judge all operands at once along a random direction; ``None`` if a gradient is not finite."""
    directions = steps_for(point.values, exam.generator)
    analytic, scale = projection(point.gradients, directions)
    if not math.isfinite(scale) and not all(g is None or is_finite(g) for g in point.gradients):
        return None
    curve = curve_along(exam, point, directions)
    ladder = ladder_of(exam, brief=brief)
    wide = brief and curve.width > WIDE and ladder.unit < FINE
    return (judge_by_the_way if wide else judge)(curve, analytic, scale, ladder)


def passes_at_a_glance(exam: Examination, point: Baseline) -> bool:
    """Whether a single central difference already agrees with the gradients of ``point``."""
    directions = steps_for(point.values, exam.generator)
    analytic, scale = projection(point.gradients, directions)
    curve = curve_along(exam, point, directions)
    return glance(curve, analytic, scale, ladder_of(exam))


def passes_coarsely(exam: Examination, point: Baseline) -> bool:
    """Whether the gradients of ``point`` are finite and roughly those of a central difference.

    For values at which cancellation may leave little of a correct gradient.
    """
    directions = steps_for(point.values, exam.generator)
    analytic, scale = projection(point.gradients, directions)
    step = ladder_of(exam).ladder[1]
    numeric = curve_along(exam, point, directions).central(step)
    return math.isfinite(scale) and abs(analytic - numeric) <= _COARSE * (scale + abs(numeric))


def is_smooth_at(exam: Examination, point: Baseline, which: int, flat: int) -> bool:
    """Whether the function is smooth along one element of operand ``which``."""
    return is_smooth_along(exam, point, _along_element(point, which, flat))


def has_slopes_at(exam: Examination, point: Baseline, which: int, flat: int) -> bool:
    """Whether the function has one-sided slopes along one element: NaN is no gradient there."""
    curve = curve_along(exam, point, _along_element(point, which, flat))
    return has_slopes(curve, ladder_of(exam))


def _along_element(point: Baseline, which: int, flat: int) -> list[torch.Tensor | None]:
    unit = _unit(point.operands.originals()[which], flat, 1.0)
    return alone(which, len(point.values), unit)


def is_smooth_along(
    exam: Examination, point: Baseline, directions: Sequence[torch.Tensor | None]
) -> bool:
    """Whether the function is smooth along ``directions``; assumed where that is not measurable."""
    if exam.resolution is None:
        return True
    return is_smooth(curve_along(exam, point, directions), ladder_of(exam))


def judge_operand(
    exam: Examination, point: Baseline, which: int, direction: torch.Tensor
) -> Verdict:
    """Judge one operand along ``direction``."""
    directions = alone(which, len(point.values), direction)
    return judge(
        curve_along(exam, point, directions),
        *projection(point.gradients, directions),
        ladder_of(exam),
    )


def point_at(exam: Examination, operands: Operands, *, stage: str) -> Baseline:
    """Call the candidate at other operands and pull fresh cotangents back.

    Raises:
        OperatorRaised: the operator raised.
    """
    values = operands.values()
    outputs = exam.candidate.forward(values, operands=operands, stage=stage)
    cotangents = exam.draw([x.detach() for x in outputs.differentiable])
    handed = tuple(x.clone() for x in cotangents)
    gradients = exam.candidate.vjp(outputs, values, handed, stage=f"backward, {stage}")
    return Baseline(
        operands=operands,
        values=values,
        outputs=outputs,
        cotangents=cotangents,
        gradients=gradients,
        output_copies=tuple(x.detach().clone() for x in outputs.differentiable),
        gradient_copies=gradients,
    )


def nearby(exam: Examination, values: Values) -> Values:
    """Return a generic point close to ``values``, away from ties and zeros."""
    moved = []
    for value in values:
        point = value.detach()
        size = 0.03 * (float(point.abs().mean()) + 1e-3) if point.numel() else 0.0
        moved.append((point + size * normal_like(point, exam.generator)).requires_grad_())
    return tuple(moved)


def elements_of(
    exam: Examination,
    point: Baseline,
    which: int,
    flat: Sequence[int],
    *,
    only_decided: bool = False,
) -> NumericElements:
    """Measure single elements of the gradient of operand ``which``; unusable ones are left out.

    ``only_decided`` keeps the elements whose deviation is confirmed by two step sizes.
    """
    gradient = point.gradients[which]
    origin = point.values[which].detach()
    dense = torch.zeros_like(origin) if gradient is None else gradient.detach()
    kept, got, expected = [], [], []
    for index in flat:
        parts = [_element(exam, point, which, index, unit, only_decided) for unit in _units(origin)]
        if all(map(math.isfinite, parts)):
            kept.append(index)
            got.append(dense.reshape(-1)[index])
            expected.append(complex(*parts) if len(parts) == 2 else parts[0])
    wide = torch.complex128 if origin.is_complex() else torch.float64
    return NumericElements(
        flat=torch.tensor(kept, dtype=torch.long),
        got=torch.stack(got).to(dtype=wide, device="cpu") if got else torch.zeros(0, dtype=wide),
        expected=torch.tensor(expected, dtype=wide),
    )


def _units(origin: torch.Tensor) -> tuple[complex, ...]:
    return (1.0, 1j) if origin.is_complex() else (1.0,)


def _element(
    exam: Examination,
    point: Baseline,
    which: int,
    index: int,
    unit: complex,
    only_decided: bool,
) -> float:
    origin = point.values[which].detach()
    size = size_of(origin)
    direction = _unit(origin, index, unit)
    verdict = judge_operand(exam, point, which, direction)
    if only_decided and verdict.state != "differs":
        return math.nan
    return verdict.numeric / size


def _unit(origin: torch.Tensor, index: int, unit: complex) -> torch.Tensor:
    """Return a direction along one element, as long as the operand's elements are large."""
    direction = torch.zeros(origin.shape, dtype=origin.dtype, device=origin.device)
    one = torch.tensor(unit, dtype=origin.dtype, device=origin.device)
    direction.view(-1)[index] = size_of(origin) * one
    return direction


def halves(
    exam: Examination, point: Baseline, which: int, window: int
) -> Iterator[tuple[int, int]]:
    """Narrow the wrong part of operand ``which`` by halving; yields flat ``(start, stop)``."""
    origin = point.values[which].detach()
    direction = steps_for([origin], exam.generator)[0]
    start, stop = 0, origin.numel()
    while stop - start > window:
        middle = (start + stop) // 2
        part = torch.zeros(origin.shape, dtype=origin.dtype, device=origin.device)
        part.view(-1)[start:middle] = direction.reshape(-1)[start:middle]
        wrong = judge_operand(exam, point, which, part).state == "differs"
        start, stop = (start, middle) if wrong else (middle, stop)
        yield start, stop

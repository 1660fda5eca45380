"""A point that the check has chosen itself: judged where the operator accepts it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands, is_differentiable
from ..truth.numerical import passes_at_a_glance, passes_coarsely, point_at
from ..wording.compare import is_finite
from .domain import in_domain
from .numerical import judge_and_report
from .onset import Growth, sets_in_gradually
from .reference import ReferenceCall, compare_at, compare_coarsely, reference_at

__all__ = ["Outcome", "Variation", "is_composed", "try_variation", "usable"]

Outcome = Literal["rejected", "judged", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """Operands to try.

    Attributes:
        operands: with other values or sizes than the given ones.
        setting: what is special about them, in words.
        coarse: far from the given values, so that only gross faults count.
        growth: makes the same with smaller values; where nothing is wrong with the smallest ones,
            a fault must set in at once.
    """

    operands: Operands
    setting: str
    coarse: bool = False
    growth: Growth | None = None


def try_variation(exam: Examination, variation: Variation) -> Generator[Issue, None, Outcome]:
    """Judge a variation, where the operator accepts it."""
    found = usable(exam, variation.operands, variation.setting)
    if found is None:
        return "rejected"
    point, truth = found
    if truth is not None:
        compare = compare_coarsely if variation.coarse else compare_at
        issues = list(compare(exam, point, variation.setting, truth))
        if not (issues and _is_calm(exam, variation, point)):
            yield from issues
        return "judged"
    passes = passes_coarsely if variation.coarse else passes_at_a_glance
    if exam.resolution is None or passes(exam, point):
        return "judged"
    if not _is_calm(exam, variation, point):
        yield from judge_and_report(exam, point, setting=variation.setting, quiet=True)
    return "unclear"


def is_composed(exam: Examination) -> bool:
    """Whether only torch's own formulas are at work and no reference defines the values: there a
    NaN in the gradient is still a fault of the composition, the rest holds at every size."""
    return exam.reference is None and not exam.own_derivatives


def usable(
    exam: Examination, operands: Operands, setting: str
) -> tuple[Baseline, ReferenceCall | None] | None:
    """Return the point when candidate and reference accept it with finite outputs."""
    truth: ReferenceCall | None = None
    try:
        point = point_at(exam, operands, stage=f"at {setting}")
        if not in_domain(exam, point):
            return None
        if exam.reference is not None:
            truth = reference_at(exam.reference, point.operands)
            if any(not is_finite(x) for x in truth.outputs.tensors if is_differentiable(x)):
                return None
    except OperatorRaised:
        return None
    return point, truth


def _is_calm(exam: Examination, variation: Variation, point: Baseline) -> bool:
    """Whether a fault only comes with the size of the values, as where a solver stops converging.

    That excuses no NaN and no infinity.
    """
    growth = variation.growth
    if growth is None or not all(g is None or is_finite(g) for g in point.gradients):
        return False
    found = usable(exam, growth(0.0), variation.setting)
    if found is None:
        return False
    calm, truth = found
    if truth is not None and list(compare_at(exam, calm, variation.setting, truth)):
        return False
    if truth is None and not passes_at_a_glance(exam, calm):
        return False
    return sets_in_gradually(exam, growth)

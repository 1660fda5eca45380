"""Other values and sizes around the given ones, within the domain that the forward accepts."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands, is_differentiable
from ..inputs.surroundings import closed_over_tensors
from ..truth.numerical import passes_at_a_glance, passes_coarsely, point_at
from ..wording.compare import is_finite, largest, same_bits
from .numerical import judge_and_report
from .reference import ReferenceCall, compare_at, compare_coarsely, reference_at

__all__ = ["other_sizes", "other_values"]

_SIDES = (67, 37, 19)
"""Prime sizes: larger than common blocks, divisible by none."""
_MOST_ELEMENTS = 20_000
_EXPLODED = 1e6
"""Outputs that grow by more than this come from outside the operator's domain."""

_SATURATING, _ONE_IN = 1000.0, 5

_Outcome = Literal["rejected", "judged", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variation:
    """Operands to try.

    Attributes:
        operands: with other values or sizes than the given ones.
        setting: what is special about them, in words.
        coarse: far from the given values, so that only gross faults count.
    """

    operands: Operands
    setting: str
    coarse: bool = False


def other_values(exam: Examination) -> Iterator[Issue]:
    """Negative, larger, zero and tied values in one point; apart from each other where the
    operator's domain or a kink does not allow that."""
    mixed = yield from _try(exam, _mixed(exam))
    if exam.broken or _is_composed(exam):
        return
    if mixed != "judged":
        yield from _try(exam, _negated(exam))
    if mixed == "rejected" and not exam.broken:
        yield from _try(exam, _with_special_values(exam))
    if exam.own_derivatives and not exam.broken:
        yield from _try(exam, _scaled_up(exam))


def _try(exam: Examination, variation: _Variation) -> Generator[Issue, None, _Outcome]:
    """Judge a variation, where the operator accepts it."""
    usable = _usable(exam, variation)
    if usable is None:
        return "rejected"
    point, truth = usable
    if truth is not None:
        compare = compare_coarsely if variation.coarse else compare_at
        yield from compare(exam, point, variation.setting, truth)
        return "judged"
    passes = passes_coarsely if variation.coarse else passes_at_a_glance
    if exam.resolution is None or passes(exam, point):
        return "judged"
    yield from judge_and_report(exam, point, setting=variation.setting, quiet=True)
    return "unclear"


def other_sizes(exam: Examination) -> Iterator[Issue]:
    """Sizes larger than common blocks, in the first plan that the operator accepts, and one."""
    if _is_composed(exam):
        return
    leaves = _sized(exam)
    fixed = _fixed_sides(exam) if leaves else set()
    for variation in _planned(exam, leaves, _larger(leaves), fixed):
        if (yield from _try(exam, variation)) != "rejected":
            break
    if not exam.broken:
        for variation in _planned(exam, leaves, _single(exam), fixed):
            yield from _try(exam, variation)


def _is_composed(exam: Examination) -> bool:
    """Whether only torch's own formulas are at work and no reference defines the values: there a
    NaN in the gradient is still a fault of the composition, the rest holds at every size."""
    return exam.reference is None and not exam.own_derivatives


def _usable(
    exam: Examination, variation: _Variation
) -> tuple[Baseline, ReferenceCall | None] | None:
    """Return the point when candidate and reference accept it with finite outputs."""
    truth: ReferenceCall | None = None
    try:
        point = point_at(exam, variation.operands, stage=f"at {variation.setting}")
        if not point.outputs.live or any(not is_finite(x) for x in point.output_copies):
            return None
        if _size(point) > _EXPLODED * (_size(exam.baseline) + 1):
            return None
        if exam.reference is not None:
            truth = reference_at(exam.reference, point.operands)
            if any(not is_finite(x) for x in truth.outputs.tensors if is_differentiable(x)):
                return None
    except OperatorRaised:
        return None
    return point, truth


def _size(point: Baseline) -> float:
    return max((largest(x) for x in point.output_copies), default=0.0)


def _mixed(exam: Examination) -> _Variation:
    values = _special(exam)
    for value in values:
        value.view(-1)[::2] *= -1.7
    setting = "negative, zero, tied and large values mixed"
    return _Variation(operands=exam.operands.with_values(_live(values)), setting=setting)


def _negated(exam: Examination) -> _Variation:
    values = [-1.7 * x for x in exam.operands.originals()]
    return _Variation(operands=exam.operands.with_values(_live(values)), setting="negated values")


def _scaled_up(exam: Examination) -> _Variation:
    """Some values at which an exponential overflows in float64: a stable forward bears them."""
    values = [x.clone(memory_format=torch.contiguous_format) for x in exam.operands.originals()]
    for value in values:
        some = value.view(-1)[::_ONE_IN]
        if not value.is_complex() and bool((value < 0).any()) and bool((value > 0).any()):
            some.abs_()
            some[1::2] *= -1
        some.add_(some.sgn()).mul_(_SATURATING)
    return _Variation(
        operands=exam.operands.with_values(_live(values)),
        setting=f"one in {_ONE_IN} values near {_SATURATING:g}",
        coarse=True,
    )


def _with_special_values(exam: Examination) -> _Variation:
    operands = exam.operands.with_values(_live(_special(exam)))
    return _Variation(operands=operands, setting="zeros and ties among the values")


def _special(exam: Examination) -> list[torch.Tensor]:
    """Copies with a zero at the end, a tie at the start and a large value between."""
    values = []
    for original in exam.operands.originals():
        value = original.clone(memory_format=torch.contiguous_format)
        flat = value.view(-1)
        if len(flat) >= 2:
            flat[-1] = 0.0
        if len(flat) >= 4:
            flat[2] = flat[0]
            flat[-2] = 30 * flat[-2]
        values.append(value)
    return values


def _live(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.requires_grad_() for value in values]


def _larger(leaves: Mapping[int, torch.Tensor]) -> Iterator[dict[int, int]]:
    """All sizes at once, then one after the other."""
    sides = sorted({side for leaf in leaves.values() for side in leaf.shape if side > 1})
    if not 0 < len(sides) <= len(_SIDES) or max(sides) >= _SIDES[0]:
        return
    targets = dict(zip(sides, _SIDES[len(sides) - 1 :: -1], strict=True))
    yield targets
    if len(targets) > 1:
        yield from ({old: new} for old, new in targets.items())


def _single(exam: Examination) -> Iterator[dict[int, int]]:
    """One sample, one row: where a squeeze or a broadcast goes wrong."""
    first = next((x.shape[0] for x in exam.operands.originals() if x.dim() > 1), 1)
    if first > 1:
        yield {first: 1}


def _sized(exam: Examination) -> dict[int, torch.Tensor]:
    """Tensors with axes; none for a module, whose parameters fix the sizes."""
    if exam.candidate.callee.module is not None:
        return {}
    return {
        index: leaf
        for index, leaf in enumerate(exam.operands.tree.leaves)
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.numel()
    }


def _planned(
    exam: Examination,
    leaves: Mapping[int, torch.Tensor],
    plans: Iterable[Mapping[int, int]],
    fixed: set[int],
) -> Iterator[_Variation]:
    for plan in plans:
        operands = None if not leaves or fixed & set(plan) else _resize(exam, leaves, plan)
        if operands is not None:
            names = ", ".join(f"{old} to {new}" for old, new in plan.items())
            yield _Variation(operands=operands, setting=f"sizes changed from {names}")


def _fixed_sides(exam: Examination) -> set[int]:
    """Sizes of tensors that the operator brings along: a kernel may trust them unchecked."""
    functions = [exam.candidate.callee.function]
    if exam.reference is not None:
        functions.append(exam.reference.callee.function)
    given = [x for x in exam.given.tree.leaves if isinstance(x, torch.Tensor)]
    brought = [
        tensor
        for function in functions
        for tensor in closed_over_tensors(function)
        if not any(same_bits(tensor, x) for x in given)
    ]
    # indices, offsets and lengths obey laws that a resize would break silently
    integers = [x for x in given if not is_differentiable(x)]
    return {side for tensor in (*brought, *integers) for side in tensor.shape}


def _resize(
    exam: Examination, leaves: Mapping[int, torch.Tensor], plan: Mapping[int, int]
) -> Operands | None:
    changed: dict[int, object] = {}
    for index, leaf in leaves.items():
        sides = [plan.get(side, side) for side in leaf.shape]
        if math.prod(sides) > _MOST_ELEMENTS:
            return None
        grown = _repeated(leaf.detach(), sides)
        if is_differentiable(grown):
            grown = grown * _close_to_one(exam, grown)
        changed[index] = grown.requires_grad_(index in exam.operands.live)
    return exam.operands.replaced(changed)


def _repeated(leaf: torch.Tensor, sides: list[int]) -> torch.Tensor:
    """Repeat the elements along every axis until it is long enough."""
    times = [-(-new // old) for new, old in zip(sides, leaf.shape, strict=True)]
    return leaf.repeat(times)[tuple(slice(side) for side in sides)].contiguous()


def _close_to_one(exam: Examination, tensor: torch.Tensor) -> torch.Tensor:
    """Draw factors between 0.95 and 1.05, so that repeated elements differ."""
    drawn = torch.rand(tensor.shape, dtype=torch.float64, generator=exam.generator)
    real = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return drawn.mul_(0.1).add_(0.95).to(dtype=real, device=tensor.device)

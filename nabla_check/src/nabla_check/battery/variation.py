"""Other values and sizes around the given ones, within the domain that the forward accepts."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands, is_differentiable
from ..inputs.surroundings import closed_over_tensors
from ..truth.numerical import passes_at_a_glance, point_at
from ..wording.compare import largest, same_bits
from .numerical import judge_and_report
from .reference import compare_at, reference_at

__all__ = ["other_sizes", "other_values"]

_SIDES = (67, 37, 19)
"""Prime sizes: larger than common blocks, divisible by none."""
_MOST_ELEMENTS = 20_000
_EXPLODED = 1e6
"""Outputs that grow by more than this come from outside the operator's domain."""

_Outcome = Literal["rejected", "judged", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variation:
    """Operands to try, and what is special about them."""

    operands: Operands
    setting: str


def other_values(exam: Examination) -> Iterator[Issue]:
    """Negative, larger, zero and tied values in one point; apart from each other where the
    operator's domain or a kink does not allow that."""
    mixed = yield from _try(exam, _mixed(exam))
    if mixed == "judged" or exam.broken or _is_composed(exam):
        return
    yield from _try(exam, _negated(exam))
    if mixed == "rejected" and not exam.broken:
        yield from _try(exam, _with_special_values(exam))


def _try(exam: Examination, variation: _Variation) -> Generator[Issue, None, _Outcome]:
    """Judge a variation, where the operator accepts it."""
    point = _usable(exam, variation)
    if point is None:
        return "rejected"
    if exam.reference is not None:
        yield from compare_at(exam, point, variation.setting)
        return "judged"
    if exam.resolution is None or passes_at_a_glance(exam, point):
        return "judged"
    yield from judge_and_report(exam, point, setting=variation.setting, quiet=True)
    return "unclear"


def other_sizes(exam: Examination) -> Iterator[Issue]:
    """Sizes larger than common blocks, in the first plan that the operator accepts, and one."""
    if _is_composed(exam):
        return
    for variation in _resized(exam):
        if (yield from _try(exam, variation)) != "rejected":
            break
    if not exam.broken:
        for variation in _single(exam):
            yield from _try(exam, variation)


def _is_composed(exam: Examination) -> bool:
    """Whether only torch's own formulas are at work and no reference defines the values: there a
    NaN in the gradient is still a fault of the composition, the rest holds at every size."""
    return exam.reference is None and not exam.own_derivatives


def _usable(exam: Examination, variation: _Variation) -> Baseline | None:
    """Return the point when candidate and reference accept it with finite outputs."""
    try:
        point = point_at(exam, variation.operands, stage=f"at {variation.setting}")
        if not point.outputs.live or any(not _finite(x) for x in point.output_copies):
            return None
        if _size(point) > _EXPLODED * (_size(exam.baseline) + 1):
            return None
        if exam.reference is not None:
            _, outputs = reference_at(exam, exam.reference, point)
            if any(not _finite(x) for x in outputs.tensors if is_differentiable(x)):
                return None
    except OperatorRaised:
        return None
    return point


def _size(point: Baseline) -> float:
    return max((largest(x) for x in point.output_copies), default=0.0)


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _mixed(exam: Examination) -> _Variation:
    values = _special(exam)
    for value in values:
        value.view(-1)[::2] *= -1.7
    setting = "negative, zero, tied and large values mixed"
    return _Variation(operands=exam.operands.with_values(_live(values)), setting=setting)


def _negated(exam: Examination) -> _Variation:
    values = [-1.7 * x for x in exam.operands.originals()]
    return _Variation(operands=exam.operands.with_values(_live(values)), setting="negated values")


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


def _resized(exam: Examination) -> Iterator[_Variation]:
    leaves = _sized(exam)
    sides = sorted({side for leaf in leaves.values() for side in leaf.shape if side > 1})
    if not 0 < len(sides) <= len(_SIDES) or max(sides) >= _SIDES[0]:
        return
    yield from _planned(
        exam, leaves, _plans(dict(zip(sides, _SIDES[len(sides) - 1 :: -1], strict=True)))
    )


def _single(exam: Examination) -> Iterator[_Variation]:
    """One sample, one row: where a squeeze or a broadcast goes wrong."""
    first = next((x.shape[0] for x in exam.operands.originals() if x.dim() > 1), 1)
    if first > 1:
        yield from _planned(exam, _sized(exam), [{first: 1}])


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
    exam: Examination, leaves: Mapping[int, torch.Tensor], plans: Iterable[Mapping[int, int]]
) -> Iterator[_Variation]:
    fixed = _fixed_sides(exam) if leaves else set()
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


def _plans(targets: Mapping[int, int]) -> Iterator[dict[int, int]]:
    yield dict(targets)
    if len(targets) > 1:
        yield from ({old: new} for old, new in targets.items())


def _resize(
    exam: Examination, leaves: Mapping[int, torch.Tensor], plan: Mapping[int, int]
) -> Operands | None:
    changed: dict[int, object] = {}
    for index, leaf in leaves.items():
        grown = leaf.detach()
        for axis, side in enumerate(leaf.shape):
            if side in plan:
                places = torch.arange(plan[side], device=leaf.device) % side
                grown = grown.index_select(axis, places)
        if grown.numel() > _MOST_ELEMENTS:
            return None
        if is_differentiable(grown):
            grown = grown * (1 + 0.05 * _uniform(exam, grown))
        changed[index] = grown.requires_grad_(index in exam.operands.live)
    return exam.operands.replaced(changed)


def _uniform(exam: Examination, tensor: torch.Tensor) -> torch.Tensor:
    drawn = torch.rand(tensor.shape, dtype=torch.float64, generator=exam.generator) * 2 - 1
    real = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return drawn.to(dtype=real, device=tensor.device)

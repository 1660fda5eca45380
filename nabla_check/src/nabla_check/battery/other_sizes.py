"""Sizes larger than common blocks, of other parity, of one axis alone, and one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..inputs.operands import Operands, is_differentiable
from ..inputs.surroundings import closed_over_tensors
from ..wording.compare import same_bits
from .variation import Variation, is_composed, try_variation

__all__ = ["other_sizes"]

_SIDES = (67, 37, 19)
"""Prime sizes: larger than common blocks, divisible by none."""
_EVEN_SIDES = (66, 38, 22)
"""For odd sides, whose parity the primes share; no larger power of two divides them."""
_MOST_ELEMENTS = 20_000
_MOST_AXES = 4

Axis = tuple[int, int]
"""Index of a leaf and number of its axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """New sizes.

    Attributes:
        sides: of every axis that is changed.
        words: the change, for messages.
    """

    sides: Mapping[Axis, int]
    words: str


def other_sizes(exam: Examination) -> Iterator[Issue]:
    """Try larger sizes in the first plan that the operator accepts, equal axes apart, and one.

    A solver that converges for the given sizes may not do so for larger ones, so a fault there
    must show also with values whose norm stays as it was.
    """
    if is_composed(exam):
        return
    leaves = _sized(exam)
    fixed = _fixed_sides(exam) if leaves else set()
    movable = {
        (index, axis): side
        for index, leaf in leaves.items()
        for axis, side in enumerate(leaf.shape)
        if side not in fixed
    }
    outcome = "rejected"
    for variation in _variations(exam, leaves, _together(leaves, movable)):
        outcome = yield from try_variation(exam, variation)
        if outcome != "rejected":
            break
    alone = () if outcome != "rejected" else _one_by_one(movable)
    for plans in (alone, _apart(leaves, movable), _single(exam, movable)):
        for variation in _variations(exam, leaves, plans):
            if exam.broken:
                return
            yield from try_variation(exam, variation)


def _together(leaves: Mapping[int, torch.Tensor], movable: Mapping[Axis, int]) -> Iterator[_Plan]:
    """All sizes at once, of the other parity or prime."""
    sides = sorted({side for leaf in leaves.values() for side in leaf.shape if side > 1})
    if not 0 < len(sides) <= len(_SIDES) or max(sides) >= _EVEN_SIDES[0]:
        return
    if {side for side in movable.values() if side > 1} != set(sides):
        return
    primes = dict(zip(sides, _SIDES[len(sides) - 1 :: -1], strict=True))
    evens = dict(zip(sides, _EVEN_SIDES[len(sides) - 1 :: -1], strict=True))
    yield _everywhere(movable, {old: evens[old] if old % 2 else primes[old] for old in sides})
    yield _everywhere(movable, primes)


def _one_by_one(movable: Mapping[Axis, int]) -> Iterator[_Plan]:
    """One size after the other, long axes first."""
    sides = sorted({side for side in movable.values() if 1 < side < _EVEN_SIDES[0]}, reverse=True)
    for old in sides[:_MOST_AXES]:
        yield _everywhere(movable, {old: _EVEN_SIDES[0] if old % 2 else _SIDES[0]})


def _everywhere(movable: Mapping[Axis, int], targets: Mapping[int, int]) -> _Plan:
    """Change a size wherever it occurs: equal sizes may have to stay equal."""
    return _Plan(
        sides={axis: targets[side] for axis, side in movable.items() if side in targets},
        words=", ".join(f"{old} to {new}" for old, new in targets.items()),
    )


def _apart(leaves: Mapping[int, torch.Tensor], movable: Mapping[Axis, int]) -> Iterator[_Plan]:
    """One axis of a square tensor: equal sizes that need not be equal hide a wrong axis."""
    square = [
        (index, axis)
        for (index, axis), side in movable.items()
        if side > 1 and list(leaves[index].shape).count(side) > 1
    ]
    for index, axis in square[:_MOST_AXES]:
        old = movable[index, axis]
        words = f"{old} to {_SIDES[-1]} in axis {axis} alone"
        yield _Plan(sides={(index, axis): _SIDES[-1]}, words=words)


def _single(exam: Examination, movable: Mapping[Axis, int]) -> Iterator[_Plan]:
    """One sample, one row: where a squeeze or a broadcast goes wrong."""
    first = next((x.shape[0] for x in exam.operands.originals() if x.dim() > 1), 1)
    if first > 1 and first in movable.values():
        yield _everywhere(movable, {first: 1})


def _sized(exam: Examination) -> dict[int, torch.Tensor]:
    """Dense tensors with axes; none for a module, whose parameters fix the sizes."""
    leaves = [leaf for leaf in exam.operands.tree.leaves if isinstance(leaf, torch.Tensor)]
    dense = all(leaf.layout is torch.strided for leaf in leaves)
    if exam.candidate.callee.module is not None or not dense:
        return {}
    return {
        index: leaf
        for index, leaf in enumerate(exam.operands.tree.leaves)
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.numel()
    }


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


def _variations(
    exam: Examination, leaves: Mapping[int, torch.Tensor], plans: Iterable[_Plan]
) -> Iterator[Variation]:
    for plan in plans:
        changed = _resized(exam, leaves, plan)
        if changed is not None:
            yield Variation(
                operands=_replaced(exam, changed),
                setting=f"sizes changed from {plan.words}",
                growth=partial(_at_share, exam, leaves, changed),
            )


def _resized(
    exam: Examination, leaves: Mapping[int, torch.Tensor], plan: _Plan
) -> dict[int, torch.Tensor] | None:
    changed = {}
    for index, leaf in leaves.items():
        sides = [plan.sides.get((index, axis), side) for axis, side in enumerate(leaf.shape)]
        if math.prod(sides) > _MOST_ELEMENTS:
            return None
        grown = _repeated(leaf.detach(), sides)
        if is_differentiable(grown):
            grown = grown * _close_to_one(exam, grown)
        changed[index] = grown
    return changed


def _at_share(
    exam: Examination,
    leaves: Mapping[int, torch.Tensor],
    grown: Mapping[int, torch.Tensor],
    share: float,
) -> Operands:
    """Return what is differentiated as large as it is, down to the norm before it grew."""
    shrunk = {
        index: leaf * min(1.0, (leaves[index].numel() / leaf.numel()) ** 0.5) ** (1 - share)
        if index in exam.operands.live
        else leaf
        for index, leaf in grown.items()
    }
    return _replaced(exam, shrunk)


def _replaced(exam: Examination, leaves: Mapping[int, torch.Tensor]) -> Operands:
    live = exam.operands.live
    return exam.operands.replaced(
        {index: leaf.clone().requires_grad_(index in live) for index, leaf in leaves.items()}
    )


def _repeated(leaf: torch.Tensor, sides: list[int]) -> torch.Tensor:
    """Repeat the elements along every axis until it is long enough."""
    times = [-(-new // old) for new, old in zip(sides, leaf.shape, strict=True)]
    return leaf.repeat(times)[tuple(slice(side) for side in sides)].contiguous()


def _close_to_one(exam: Examination, tensor: torch.Tensor) -> torch.Tensor:
    """Draw factors between 0.95 and 1.05, so that repeated elements differ."""
    drawn = torch.rand(tensor.shape, dtype=torch.float64, generator=exam.generator)
    real = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return drawn.mul_(0.1).add_(0.95).to(dtype=real, device=tensor.device)

"""Whether candidate and reference agree up to rounding, in any dtype.

Equal up to a few roundings of the largest element: agreed, at the cost of two reductions. Otherwise
the truth is the reference in float64 (complex128), on the inputs as rounded to their dtype, and the
room around it is measured: the dtype's rounding, the change of the truth under relative changes of
the inputs by one rounding, and eight times the error of the reference in the same dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..inputs.operands import is_differentiable, widened
from ..truth.conditioning import random_signs
from ..wording.compare import Deviation, deviation, largest
from .recipe import Case
from .subject import Subject, TrialCall, call

__all__ = ["Comparison", "Tolerances", "Truth", "find_deviation", "nearly_equal", "room_around"]

_QUICK_ROUNDINGS = 4.0
_REFERENCE_FACTOR = 8.0
_NATURAL_ROUNDINGS = 8.0
_SAMPLES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """What the caller allows besides rounding.

    Attributes:
        absolute: in the unit of the result.
        relative: in units of the largest expected element.
    """

    absolute: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The reference in the widest precision, and how much room a result has around it.

    Attributes:
        call: outputs and gradients.
        outputs_room: largest acceptable error per output.
        gradients_room: largest acceptable error per gradient.
        tensors: the inputs it was called with.
        cotangents: what was pulled back.
    """

    call: TrialCall
    outputs_room: tuple[float, ...]
    gradients_room: tuple[float, ...]
    tensors: tuple[torch.Tensor, ...]
    cotangents: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One tensor under test, the same by the reference, and the truth with its room."""

    got: torch.Tensor
    reference: torch.Tensor
    truth: torch.Tensor
    room: float


def nearly_equal(got: torch.Tensor, expected: torch.Tensor, tolerances: Tolerances) -> bool:
    """Whether two tensors of one shape and dtype agree within a few roundings; NaN equals NaN."""
    left, right = got.detach(), expected.detach()
    if torch.equal(left, right):
        return True
    if not is_differentiable(left):
        return False
    error = float((left - right).abs().max())
    scale = float(right.abs().max())
    if not (math.isfinite(error) and math.isfinite(scale)):
        return False
    roundings = _QUICK_ROUNDINGS * _unit(left.dtype)
    return error <= (roundings + tolerances.relative) * scale + tolerances.absolute


def room_around(
    subject: Subject,
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    reference: TrialCall,
    case: Case,
) -> Truth:
    """Measure the truth and its room for one case.

    Args:
        subject: gives the reference.
        tensors: the drawn tensors, in their own dtype.
        cotangents: as drawn, one per output.
        reference: result of the reference in the same dtype.
        case: gives the seeds.
    """
    generator = torch.Generator().manual_seed(case.seed + 104729)
    wide_tensors, wide_cotangents = _wide(tensors), widened(cotangents)
    truth = _reference(subject, case, wide_tensors, wide_cotangents)
    if truth.error is not None or not _same_shapes(truth, reference):
        wide_tensors, wide_cotangents = tuple(tensors), tuple(cotangents)  # refuses the wide dtype
        truth = reference
    unit = max(_unit(x.dtype) for x in tensors) if tensors else 2.0**-53
    moved = [
        _reference(
            subject,
            case,
            _disturbed(wide_tensors, tensors, unit, generator),
            _disturbed(wide_cotangents, cotangents, unit, generator),
        )
        for _ in range(_SAMPLES)
    ]
    flow = max((largest(u) for u in wide_cotangents if is_differentiable(u)), default=0.0)
    natural = flow + _natural_scale(truth, wide_tensors, wide_cotangents)
    return Truth(
        call=truth,
        outputs_room=_rooms([x.outputs for x in moved], truth.outputs, reference.outputs, 1.0),
        gradients_room=_rooms(
            [x.gradients for x in moved], truth.gradients, reference.gradients, natural
        ),
        tensors=wide_tensors,
        cotangents=wide_cotangents,
    )


def find_deviation(comparison: Comparison, tolerances: Tolerances) -> Deviation | None:
    """Return the worst element that is farther from the truth than its room, if any.

    Elements where the truth, or the reference in the same dtype, is not finite or leaves the range
    of the dtype are not judged.
    """
    got, truth = comparison.got.detach(), comparison.truth.detach()
    if not is_differentiable(got):
        return deviation(got, truth.to(got.dtype), relative=0.0)
    reach = torch.finfo(got.dtype).max
    judged = torch.isfinite(truth) & torch.isfinite(comparison.reference) & (truth.abs() < reach)
    safe = torch.where(judged, truth, torch.zeros_like(truth))
    wide = got.to(truth.dtype)
    return deviation(
        torch.where(judged, wide, safe),
        safe,
        relative=tolerances.relative,
        absolute=comparison.room + tolerances.absolute,
    )


def _reference(
    subject: Subject,
    case: Case,
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> TrialCall:
    if subject.reference is None:
        raise RuntimeError("there is no reference to measure with")
    return call(subject, subject.reference, tensors, case, cotangents)


def _wide(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(
        wide.requires_grad_(tensor.requires_grad)
        for wide, tensor in zip(widened(tensors), tensors, strict=True)
    )


def _same_shapes(wide: TrialCall, narrow: TrialCall) -> bool:
    return [x.shape for x in wide.outputs] == [x.shape for x in narrow.outputs]


def _rooms(
    moved: Sequence[Sequence[torch.Tensor | None]],
    truth: Sequence[torch.Tensor | None],
    reference: Sequence[torch.Tensor | None],
    natural: float,
) -> tuple[float, ...]:
    """Return the room of each tensor.

    ``natural`` is the size of intermediate values: an operator may add one to its input or subtract
    two products that nearly cancel, and neither shows in the size of the result.
    """
    rooms = []
    for index, (exact, rounded) in enumerate(zip(truth, reference, strict=True)):
        if exact is None or rounded is None or not is_differentiable(rounded):
            rooms.append(0.0)
            continue
        changes = [_distance(sample[index], exact) for sample in moved if index < len(sample)]
        roundings, sensitivity = _factors(rounded.dtype)
        unit = _unit(rounded.dtype)
        room = unit * (roundings * largest(exact) + _NATURAL_ROUNDINGS * natural)
        room += sensitivity * max(changes, default=0.0)
        room += 4 * torch.finfo(rounded.dtype).smallest_normal * torch.finfo(rounded.dtype).eps
        rooms.append(room + _REFERENCE_FACTOR * _distance(rounded, exact))
    return tuple(rooms)


def _factors(dtype: torch.dtype) -> tuple[float, float]:
    """Roundings of the result and of the inputs that a correct algorithm may add up."""
    unit = _unit(dtype)
    if unit < 2.0**-40:
        return 1024.0, 64.0  # a fault below 1e-12 of the result is nobody's concern
    return (64.0, 16.0) if unit < 2.0**-20 else (8.0, 8.0)


def _unit(dtype: torch.dtype) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return float(torch.finfo(dtype).eps) / 2


def _distance(a: torch.Tensor | None, b: torch.Tensor | None) -> float:
    if a is None or b is None or a.shape != b.shape or not is_differentiable(b):
        return 0.0
    return largest(a.detach().to(b.dtype) - b.detach())


def _natural_scale(
    truth: TrialCall, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> float:
    """Size that a gradient has when nothing cancels: cotangent times output over input."""
    floating = [x for x in tensors if is_differentiable(x)]
    top = max((largest(x) for x in floating), default=0.0)
    pairs = zip(truth.outputs, cotangents, strict=False)
    flow = max((largest(y) * largest(u) for y, u in pairs if is_differentiable(y)), default=0.0)
    natural = flow / top if top else 0.0
    return natural if math.isfinite(natural) else 0.0


def _disturbed(
    wide: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    unit: float,
    generator: torch.Generator,
) -> tuple[torch.Tensor, ...]:
    moved = []
    for tensor, original in zip(wide, given, strict=True):
        if not is_differentiable(tensor):
            moved.append(tensor)
            continue
        signs = random_signs(tensor, generator)
        own = torch.finfo(original.dtype)
        quantum = own.smallest_normal * own.eps  # below it a relative change is none
        source = tensor.detach()
        step = torch.clamp(source.abs() * unit, min=quantum)
        # an exact zero stays: constants and masks are not rounded
        changed = source + torch.where(source == 0, torch.zeros_like(step), step) * signs
        moved.append(changed.requires_grad_(tensor.requires_grad))
    return tuple(moved)

"""Outputs and gradients against the reference, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from nabla_core.errors import UsageError
from nabla_core.issue import Issue, Quantity

from ..examination import Baseline, Examination
from ..inputs import rng
from ..inputs.evaluation import Evaluator, Gradients, OperatorRaised, Outputs
from ..inputs.operands import Operands, Values, is_differentiable
from ..rules import BACKWARD_MISMATCH, FORWARD_MISMATCH, MISSING_GRADIENT
from ..truth.conditioning import disturbed, gradient_floors, output_floors
from ..wording.accuse import Basis, missing_gradient, wrong_gradient
from ..wording.compare import Deviation, deviation, is_finite, largest
from ..wording.describe import describe
from .excluded_ties import beside_ties, halves_excluded_ties, tie_note
from .excuse import is_excused
from .structure import structures

__all__ = [
    "ReferenceCall",
    "compare_at",
    "compare_coarsely",
    "compare_with_reference",
    "reference_at",
    "reference_raises",
]

TRUTH = "reference"
_COARSE = 0.1
_SHAKE, _SHAKES = 2.0**-50, 3
_NOISY = 1e-3
"""Share of a result that rounding moves, from which on a tried point says nothing."""


def compare_with_reference(exam: Examination) -> Iterator[Issue]:
    """Compare the baseline with the reference (CHK101, CHK103, CHK201, CHK202).

    Raises:
        UsageError: the reference raises on the very inputs that were given.
    """
    if exam.reference is None:
        exam.skip(FORWARD_MISMATCH, "no reference was given")
        return
    try:
        truth = reference_at(exam.reference, exam.baseline.operands)
    except OperatorRaised as raised:
        _refuse_useless(exam, exam.reference)
        yield exam.note("reference", f"it raised {raised.summary} in {raised.stage} with float64")
        return
    yield from compare_at(exam, exam.baseline, truth=truth)


def _refuse_useless(exam: Examination, reference: Evaluator) -> None:
    """A reference that only refuses float64, in which formulas are judged, is none the worse."""
    try:
        reference.forward(exam.given.values(), operands=exam.given, stage="reference")
    except OperatorRaised as raised:
        raise UsageError(
            f"the reference of {exam.candidate.callee.name} raised {raised.summary} on the given "
            "inputs, so nothing can be compared with it; correct it, or give none"
        ) from raised.error


@dataclass(frozen=True, slots=True)
class ReferenceCall:
    """A call of the reference, with its graph.

    Attributes:
        operands: what it was called with.
        values: differentiable operands of the call.
        outputs: what it returned.
    """

    operands: Operands
    values: Values
    outputs: Outputs


def compare_at(
    exam: Examination, point: Baseline, setting: str = "", truth: ReferenceCall | None = None
) -> Iterator[Issue]:
    """Compare any point with the reference.

    Args:
        exam: the examination.
        point: where.
        setting: what is special about it, in words.
        truth: call of the reference there, where it has been made.
    """
    reference = exam.reference
    if reference is None:
        return
    try:
        truth = truth or reference_at(reference, point.operands)
    except OperatorRaised as raised:
        yield exam.note("reference", f"it raised {raised.summary} in {raised.stage}")
        return
    wrong_structure = list(structures(exam, point.outputs, truth.outputs, setting))
    yield from wrong_structure
    if wrong_structure:
        return
    if not _comparable(exam, reference):
        yield exam.note("forward", "candidate and reference draw random numbers differently")
        return
    issues: list[Issue] = []
    if exam.options.wants("forward"):
        issues += _outputs(exam, reference, point, truth.outputs, setting)
    if exam.options.wants("backward"):
        issues += _gradients(exam, reference, point, truth, setting)
    if issues and setting and _is_noise(exam, reference, truth):
        return
    if issues and _ties_with_excluded(exam, reference, point, truth):
        issues = [] if setting else [tie_note(exam)]
    yield from issues


def _ties_with_excluded(
    exam: Examination, reference: Evaluator, point: Baseline, truth: ReferenceCall
) -> bool:
    """Whether torch's own formula may be what differs: beside the ties there is no difference."""
    if not (
        halves_excluded_ties(truth.outputs.differentiable)
        or halves_excluded_ties(point.outputs.differentiable)
    ):
        return False
    beside = beside_ties(exam, point)
    there = reference_at(reference, beside.operands)
    return not [
        *_outputs(exam, reference, beside, there.outputs, ""),
        *_gradients(exam, reference, beside, there, ""),
    ]


def _is_noise(exam: Examination, reference: Evaluator, truth: ReferenceCall) -> bool:
    """Whether a few units in the last place move the reference's outputs, or make them NaN: at a
    tried point it may be nothing but rounding, as the determinant of a matrix without full rank."""
    expected = [x.detach() for x in truth.outputs.differentiable]
    for _ in range(_SHAKES):
        shaken = disturbed(truth.values, _SHAKE, exam.generator)
        try:
            moved = reference.values_at(shaken, truth.outputs.live, operands=truth.operands)
        except OperatorRaised:
            return True
        for new, old in zip(moved, expected, strict=True):
            if not is_finite(new) or largest(new - old) > _NOISY * largest(old):
                return True
    return False


def reference_at(reference: Evaluator, operands: Operands) -> ReferenceCall:
    """Call the reference; the first call shows whether it draws random numbers.

    Raises:
        OperatorRaised: the reference raised.
    """
    is_first = not reference.forwards
    if is_first:
        rng.restore(reference.start)
    values = operands.values()
    outputs = reference.forward(values, operands=operands, stage="reference")
    if is_first:
        reference.stochastic = bool(rng.changed(reference.start, rng.capture()))
    return ReferenceCall(operands, values, outputs)


def reference_raises(exam: Examination, operands: Operands) -> bool:
    """Whether the reference, if there is one, raises at ``operands`` too."""
    if exam.reference is None:
        return False
    try:
        exam.reference.forward(operands.values(), operands=operands, stage="reference")
    except OperatorRaised:
        return True
    return False


def _comparable(exam: Examination, reference: Evaluator) -> bool:
    """A stochastic pair can be compared when both advance the generators equally."""
    if not exam.candidate.stochastic:
        return True
    after_reference = rng.capture()
    exam.candidate.values_at(exam.operands.originals(), ())
    return not rng.changed(after_reference, rng.capture())


def _outputs(
    exam: Examination,
    reference: Evaluator,
    point: Baseline,
    expected: Outputs,
    setting: str,
) -> Iterator[Issue]:
    floors: list[float] | None = None
    for position, (a, b) in enumerate(zip(point.outputs.tensors, expected.tensors, strict=True)):
        found = _beyond(exam, a, b, 0.0)
        if found is None:
            continue
        if is_differentiable(b) and floors is None:
            floors = output_floors(reference, point.operands, expected, exam.generator)
        found = _beyond(exam, a, b, floors[position] if floors and is_differentiable(b) else 0.0)
        if found is None:
            continue
        name = expected.tensor_names[position]
        tail = f" ({setting})" if setting else ""
        yield exam.verdict(
            FORWARD_MISMATCH,
            f"The {describe(name, found)} by the reference{tail}.",
            operand=name,
            phase="forward",
            error=Quantity(value=found.error, limit=found.limit),
            got=found.got,
            expected=found.expected,
            index=str(list(found.index)),
        )


def _beyond(
    exam: Examination, got: torch.Tensor, expected: torch.Tensor, floor: float
) -> Deviation | None:
    if not is_differentiable(expected):
        return deviation(got, expected, relative=0.0)
    options = exam.options
    relative = exam.tolerance if options.relative_tolerance is None else options.relative_tolerance
    absolute = floor if options.absolute_tolerance is None else options.absolute_tolerance
    return deviation(got, expected, relative=relative, absolute=absolute)


def _gradients(
    exam: Examination,
    reference: Evaluator,
    point: Baseline,
    truth: ReferenceCall,
    setting: str,
) -> Iterator[Issue]:
    values, outputs = truth.values, truth.outputs
    if not outputs.live:
        exam.skip(BACKWARD_MISMATCH, "the reference carries no gradient")
        return
    weights = dict(zip(point.outputs.live, point.cotangents, strict=True))
    common = [index for index in outputs.live if index in weights]
    pulled = reference.pull(outputs.pick(common), values, [weights[i] for i in common])
    lost = [index for index in outputs.live if index not in weights]
    if lost:
        names = ", ".join(outputs.tree.names[index] for index in lost)
        yield exam.verdict(
            MISSING_GRADIENT,
            f"{names} carries no gradient (requires_grad is False), the reference's does.",
            operand=names,
            phase="forward",
        )
    yield from _compare_gradients(exam, reference, point, pulled, setting)


def _compare_gradients(
    exam: Examination,
    reference: Evaluator,
    point: Baseline,
    expected: Gradients,
    setting: str,
) -> Iterator[Issue]:
    floors: list[float] | None = None
    top = max((largest(g) for g in expected), default=0.0)
    for which, (got, want) in enumerate(zip(point.gradient_copies, expected, strict=True)):
        if want is None and got is None:
            continue
        truth = torch.zeros_like(point.values[which]) if want is None else want
        dense = torch.zeros_like(truth) if got is None else got
        if _beyond(exam, dense, truth, 1e-4 * exam.tolerance * top) is None:
            continue
        if floors is None:
            floors = gradient_floors(reference, point.operands, point.cotangents, exam.generator)
        found = _beyond(exam, dense, truth, floors[which])
        if found is None or (
            setting and is_excused(exam, point, which, point.gradient_copies, expected)
        ):
            continue
        if want is not None and got is None and not is_finite(want):
            yield missing_gradient(
                exam,
                point.operands.live_names[which],
                largest(want),
                Basis(truth=TRUTH, setting=setting),
            )
            continue
        basis = Basis(truth=TRUTH, limit=found.limit, setting=setting)
        issue = wrong_gradient(exam, point, which, (got, truth), basis)
        if issue is not None:
            yield issue


def compare_coarsely(
    exam: Examination, point: Baseline, setting: str, truth: ReferenceCall
) -> Iterator[Issue]:
    """Look only for gross faults of the gradient, far from the given values.

    Two right algorithms may differ there in most digits of a gradient that cancels.
    """
    reference = exam.reference
    if reference is None or point.outputs.live != truth.outputs.live or exam.candidate.draws:
        return
    expected = reference.vjp(truth.outputs, truth.values, point.cotangents)
    top = max((largest(g) for g in expected), default=0.0)
    for which, (got, want) in enumerate(zip(point.gradient_copies, expected, strict=True)):
        if want is None:
            continue
        dense = torch.zeros_like(want) if got is None else got
        found = deviation(dense, want, relative=_COARSE, absolute=_COARSE / 100 * top)
        if found is None or is_excused(exam, point, which, point.gradient_copies, expected):
            continue
        if _ties_with_excluded(exam, reference, point, truth):
            return
        basis = Basis(truth=TRUTH, limit=found.limit, setting=setting)
        issue = wrong_gradient(exam, point, which, (got, want), basis)
        if issue is not None:
            yield issue

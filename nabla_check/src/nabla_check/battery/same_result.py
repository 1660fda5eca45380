"""A call that must give what another one gave: the same values, handed over differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import Outputs
from ..inputs.operands import Operands, Values
from ..rules import INPUT_LAYOUT
from ..truth.conditioning import output_floors
from ..wording.compare import deviation
from ..wording.describe import describe
from .excuse import is_excused
from .linearity import worst

__all__ = ["OtherCall", "compare_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall:
    """The same values, handed over differently.

    Attributes:
        operands: what is handed over.
        values: its differentiable tensors.
        setting: what is different, in words.
        ordinary: what the result must be equal to, in words.
    """

    operands: Operands
    values: Values
    setting: str
    ordinary: str


def compare_call(exam: Examination, call: OtherCall, truth: Baseline) -> Iterator[Issue]:
    """Compare outputs and gradients of ``call`` with those of ``truth`` (CHK213).

    Raises:
        OperatorRaised: the operator raised.
    """
    outputs = exam.candidate.forward(call.values, operands=call.operands, stage="forward")
    wrong = _outputs_differ(exam, outputs, call, truth)
    if wrong is not None:
        yield wrong
        return
    handed = tuple(u.clone() for u in truth.cotangents)
    gradients = exam.candidate.vjp(outputs, call.values, handed)
    found = worst(exam, gradients, truth.gradient_copies, truth)
    if found is None:
        return
    which, where = found
    if truth is not exam.baseline and is_excused(
        exam, truth, which, gradients, truth.gradient_copies
    ):
        return  # equal values tie: another path may choose another one of them
    name = exam.operands.live_names[which]
    yield exam.verdict(
        INPUT_LAYOUT,
        f"With {call.setting} the gradient of {describe(name, where)} as {call.ordinary}.",
        operand=name,
        setting=call.setting,
        got=where.got,
        expected=where.expected,
    )


def _outputs_differ(
    exam: Examination, outputs: Outputs, call: OtherCall, truth: Baseline
) -> Issue | None:
    if len(outputs.live) != len(truth.outputs.live):
        return None
    tolerance = max(1e-9, exam.tolerance)
    pairs = zip(outputs.differentiable, truth.output_copies, strict=True)
    for position, (a, b) in enumerate(pairs):
        if a.shape != b.shape:
            return exam.verdict(
                INPUT_LAYOUT,
                f"With {call.setting} the output has shape {list(a.shape)}, "
                f"expected {list(b.shape)}.",
                phase="forward",
                setting=call.setting,
            )
        if deviation(a, b, relative=tolerance) is None:
            continue
        found = deviation(a, b, relative=tolerance, absolute=_floors(exam, truth)[position])
        if found is not None:
            name = truth.outputs.live_names[position]
            return exam.verdict(
                INPUT_LAYOUT,
                f"With {call.setting} the {describe(name, found)} as {call.ordinary}.",
                operand=name,
                phase="forward",
                setting=call.setting,
                got=found.got,
                expected=found.expected,
            )
    return None


def _floors(exam: Examination, truth: Baseline) -> list[float]:
    """Return how far rounding may move each differentiable output."""
    every = output_floors(exam.candidate, truth.operands, truth.outputs, exam.generator, exam.unit)
    live = [x.requires_grad for x in truth.outputs.tensors]
    return [floor for floor, is_live in zip(every, live, strict=True) if is_live]

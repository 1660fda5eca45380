"""One light trial: forward and gradient of a drawn case against the reference, or the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from ..inputs.layouts import copy_as_is
from ..inputs.operands import is_differentiable
from ..wording.compare import deviation, largest
from ..wording.describe import dtype_name
from .agreement import Comparison, Tolerances, Truth, find_deviation, nearly_equal, room_around
from .line import Point, judge_call
from .outcome import (
    Finding,
    Outcome,
    broken_property,
    layout_dependent,
    raised,
    structure_differs,
    written,
    wrong_derivative,
    wrong_gradient,
    wrong_output,
)
from .properties import Law
from .recipe import Case
from .subject import Subject, TrialCall, call, draw_cotangents
from .values import is_generic

__all__ = ["Trial", "TrialOptions"]

_ORDER_ROUNDINGS = 64.0
"""Sums over other strides may add in another order."""

_REFUSALS = (RuntimeError, ValueError, NotImplementedError, AssertionError, TypeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What a trial compares.

    Attributes:
        backward: compare gradients too.
        tolerances: what the caller allows besides rounding.
        laws: properties that every trial must keep.
    """

    backward: bool = True
    tolerances: Tolerances = field(default_factory=Tolerances)
    laws: tuple[Law, ...] = ()


class Trial:
    """Runs cases of one operator; keeps no state between them.

    Args:
        subject: the operator and its arguments.
        options: what to compare.
    """

    def __init__(self, subject: Subject, options: TrialOptions) -> None:
        self._subject = subject
        self._options = options

    def run(self, case: Case) -> Outcome:
        """Try one case."""
        return self.run_with(case, case.build())

    def run_with(
        self,
        case: Case,
        tensors: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor] | None = None,
    ) -> Outcome:
        """Try ``tensors`` in place of those of the case, e.g. the same values in other memory."""
        if not self._options.backward:
            tensors = [tensor.detach() for tensor in tensors]
        kept = [copy_as_is(x).requires_grad_(x.requires_grad) for x in tensors]
        if self._subject.reference is None:
            outcome = self._alone(case, tensors, kept)
        else:
            outcome = self._beside_reference(case, tensors, kept, cotangents)
        if outcome.state == "failed" or not self._options.laws:
            return outcome
        return self._under_laws(kept, outcome)

    def _beside_reference(
        self,
        case: Case,
        tensors: Sequence[torch.Tensor],
        kept: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor] | None,
    ) -> Outcome:
        subject = self._subject
        if subject.reference is None:
            raise RuntimeError("there is no reference to compare with")
        expected = call(subject, subject.reference, kept, case)
        if expected.error is not None:
            reason = f"the reference refuses the input ({expected.refusal})"
            return Outcome(state="skipped", reason=reason)
        cotangents = cotangents or draw_cotangents(expected.outputs, case)
        got = call(subject, subject.candidate, tensors, case, cotangents)
        if got.error is not None and not _is_mismatch(got, expected):
            return self._raised(case, got, "where the reference does not")
        finding = structure_differs(got, expected)
        finding = finding or written(subject.names, tensors, kept, got.outputs)
        if finding is not None:
            return Outcome.of(finding)
        if self._agrees(got, expected):
            return Outcome(state="passed")
        truth = room_around(subject, kept, cotangents, expected, case)
        return self._judged(case, got, expected, truth)

    def _agrees(self, got: TrialCall, expected: TrialCall) -> bool:
        allowed = self._options.tolerances
        pairs = zip(got.outputs, expected.outputs, strict=True)
        if not all(nearly_equal(a, b, allowed) for a, b in pairs):
            return False
        for a, b in zip(got.gradients, expected.gradients, strict=True):
            if a is None and b is None:
                continue
            if a is None or b is None or not nearly_equal(a, b, allowed):
                return False
        return True

    def _judged(self, case: Case, got: TrialCall, expected: TrialCall, truth: Truth) -> Outcome:
        finding = self._forward(case, got, expected, truth)
        in_forward = finding is not None
        finding = finding or self._backward(got, expected, truth)
        if finding is None:
            return Outcome(state="passed")
        same_draws = not in_forward and _has_no_ties(case) and _is_all_double(case)
        if not same_draws and self._is_random(case):
            reason = "candidate and reference draw random numbers differently"
            return Outcome(state="undecided", reason=reason)
        if in_forward:
            return Outcome.of(finding)
        doubt = self._doubt(case, got, truth)
        return Outcome(state="undecided", reason=doubt) if doubt else Outcome.of(finding)

    def _forward(
        self, case: Case, got: TrialCall, expected: TrialCall, truth: Truth
    ) -> Finding | None:
        generic = _has_no_ties(case)
        rows = zip(
            got.outputs, expected.outputs, truth.call.outputs, truth.outputs_room, strict=True
        )
        for index, (value, reference, true, room) in enumerate(rows):
            if not (is_differentiable(value) or generic):
                continue
            row = Comparison(got=value, reference=reference, truth=true, room=room)
            found = find_deviation(row, self._options.tolerances)
            if found is not None:
                return wrong_output(index, len(got.outputs), found)
        return None

    def _backward(self, got: TrialCall, expected: TrialCall, truth: Truth) -> Finding | None:
        live = [
            (name, tensor)
            for name, tensor in zip(self._subject.names, truth.tensors, strict=True)
            if tensor.requires_grad
        ]
        for index, (name, tensor) in enumerate(live):
            zeros = torch.zeros_like(tensor, requires_grad=False)
            value, reference = got.gradients[index], expected.gradients[index]
            true = truth.call.gradients[index]
            row = Comparison(
                got=zeros if value is None else value,
                reference=zeros if reference is None else reference,
                truth=zeros if true is None else true,
                room=truth.gradients_room[index],
            )
            found = find_deviation(row, self._options.tolerances)
            if found is not None:
                return wrong_gradient(name, found, is_missing=value is None)
        return None

    def _is_random(self, case: Case) -> bool:
        """Whether candidate or reference draws from the global generator."""
        torch.default_generator.manual_seed(case.seed)
        fresh = torch.default_generator.get_state()
        for function in (self._subject.candidate, self._subject.reference):
            if function is not None:
                call(self._subject, function, case.build(), case)
                if not torch.equal(fresh, torch.default_generator.get_state()):
                    return True
        return False

    def _doubt(self, case: Case, got: TrialCall, truth: Truth) -> str:
        """Say why the reference's gradient is no judge here: a kink, or the candidate is right."""
        if self._subject.reference is None or not _all_finite(got.gradients):
            return ""
        point = Point(tensors=truth.tensors, cotangents=truth.cotangents)
        verdict = judge_call(self._subject, self._subject.reference, got, case, point)
        if verdict is not None and verdict.state == "kink":
            return "the input sits on a kink, where the gradient is a convention"
        if verdict is not None and verdict.state == "agrees" and abs(verdict.analytic) > 0:
            return "the numerical derivative agrees with the operator and not with the reference"
        return ""

    def _alone(
        self, case: Case, tensors: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]
    ) -> Outcome:
        subject = self._subject
        got = call(subject, subject.candidate, tensors, case)
        if got.stage == "forward":
            return Outcome(state="skipped", reason=f"the operator refuses it ({got.refusal})")
        if got.error is not None:
            return self._raised(case, got, "although the forward accepts the input")
        finding = written(subject.names, tensors, kept, got.outputs)
        finding = finding or self._other_in_dense_memory(case, got, kept)
        if finding is not None:
            return Outcome.of(finding)
        if not any(y.requires_grad for y in got.outputs):
            return Outcome(state="skipped", reason="nothing is differentiated")
        cotangents = draw_cotangents(got.outputs, case)
        point = Point(tensors=kept, cotangents=cotangents)
        verdict = judge_call(subject, subject.candidate, got, case, point)
        if verdict is None:
            names = sorted({dtype_name(x.dtype) for x in kept})
            reason = f"no numerical derivative in {', '.join(names)}; give a reference"
            return Outcome(state="skipped", reason=reason)
        if verdict.state == "differs" and _is_generic_point(case):
            return Outcome.of(wrong_derivative(verdict))
        if verdict.state == "agrees":
            return Outcome(state="passed")
        reason = "differences are no judge at special values; give a reference"
        if verdict.state != "differs":
            reason = f"numerical derivative: {verdict.state}"
        return Outcome(state="undecided", reason=reason)

    def _other_in_dense_memory(
        self, case: Case, got: TrialCall, kept: Sequence[torch.Tensor]
    ) -> Finding | None:
        """Compare the outputs with those for the same values in contiguous memory."""
        if all(entry.layout == "contiguous" for entry in case.inputs):
            return None
        dense = [x.detach().contiguous() for x in kept]
        again = call(self._subject, self._subject.candidate, dense, case)
        if again.error is not None or structure_differs(got, again) is not None:
            return None
        terms = sum(largest(x) * x.numel() for x in dense if is_differentiable(x))
        for index, (value, other) in enumerate(zip(got.outputs, again.outputs, strict=True)):
            if is_differentiable(value):
                rounding = _ORDER_ROUNDINGS * float(torch.finfo(value.dtype).eps)
                found = deviation(value, other, relative=rounding, absolute=rounding * terms)
                if found is not None and not self._is_random(case):
                    return layout_dependent(index, len(got.outputs), found)
        return None

    def _raised(self, case: Case, got: TrialCall, contrast: str) -> Outcome:
        if isinstance(got.error, _REFUSALS) and self._refuses_layout(case):
            return Outcome(state="skipped", reason=f"a layout is refused ({got.refusal})")
        return Outcome.of(raised(got, contrast))

    def _refuses_layout(self, case: Case) -> bool:
        """Whether the same case works in contiguous memory: a clear refusal is no fault."""
        inputs = tuple(replace(entry, layout="contiguous") for entry in case.inputs)
        plain = replace(case, inputs=inputs, cotangent="contiguous")
        if plain == case:
            return False
        return call(self._subject, self._subject.candidate, plain.build(), plain).error is None

    def _under_laws(self, kept: Sequence[torch.Tensor], outcome: Outcome) -> Outcome:
        for law in self._options.laws:
            tensors = [copy_as_is(x).requires_grad_(x.requires_grad) for x in kept]
            violation = law.violation(self._subject.candidate, self._subject.filled(tensors))
            if violation is not None:
                return Outcome.of(broken_property(law.name, violation))
        return Outcome(state="passed")


def _is_mismatch(got: TrialCall, expected: TrialCall) -> bool:
    """Whether the backward failed only because the outputs are not those of the reference."""
    return got.stage == "backward" and structure_differs(got, expected) is not None


def _has_no_ties(case: Case) -> bool:
    """Whether elements are distinct: which of two equal ones an index names is a convention."""
    return _is_generic_point(case) and all(_is_wide(entry.dtype) for entry in case.inputs)


def _is_generic_point(case: Case) -> bool:
    """Whether the values are away from zeros, ties and the ends of the dtype."""
    return all(is_generic(entry.values) and entry.layout != "expanded" for entry in case.inputs)


def _is_wide(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point or torch.finfo(dtype).eps < 1e-6


def _is_all_double(case: Case) -> bool:
    """Whether the truth is computed in the dtype of the trial, so from the same random numbers."""
    return not any(
        entry.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
        for entry in case.inputs
    )


def _all_finite(gradients: Sequence[torch.Tensor | None]) -> bool:
    return all(g is None or bool(torch.isfinite(g).all()) for g in gradients)

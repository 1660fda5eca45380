"""What becomes of a trial, and the faults that it can find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from nabla_core.issue import Evidence, Phase

from ..inputs.layouts import shares_memory
from ..rules import (
    BACKWARD_MISMATCH,
    FORWARD_MISMATCH,
    INPUT_LAYOUT,
    MISSING_GRADIENT,
    MUTATES_INPUT,
    OPERATOR_EXCEPTION,
    OUTPUT_STRUCTURE,
    PROPERTY_VIOLATION,
)
from ..truth.oracle import Verdict
from ..wording.compare import Deviation, largest, same_bits
from ..wording.describe import at_index, describe, dtype_name, number
from .subject import TrialCall

__all__ = [
    "Finding",
    "Outcome",
    "State",
    "layout_dependent",
    "broken_property",
    "raised",
    "structure_differs",
    "wrong_derivative",
    "wrong_gradient",
    "wrong_output",
    "written",
]

State = Literal["passed", "failed", "skipped", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault that a trial found.

    Attributes:
        rule: ID of the rule.
        message: one sentence with the measured value and the limit.
        operand: name of the input, where one is to blame.
        phase: forward or backward.
        evidence: the numbers.
    """

    rule: str
    message: str
    operand: str | None = None
    phase: Phase = "forward"
    evidence: tuple[tuple[str, Evidence], ...] = ()

    @property
    def kind(self) -> str:
        """What a shrunk case must have in common with the case that was found."""
        return BACKWARD_MISMATCH.id if self.rule == MISSING_GRADIENT.id else self.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one trial.

    Attributes:
        state: passed, failed, skipped (nothing to compare) or undecided.
        reason: why it was skipped or is undecided.
        finding: the fault of a failed trial.
    """

    state: State
    reason: str = ""
    finding: Finding | None = None

    @classmethod
    def of(cls, finding: Finding | None) -> Outcome:
        """Return a failed outcome, or a passed one without a finding."""
        return cls(state="passed" if finding is None else "failed", finding=finding)


def raised(found: TrialCall, contrast: str) -> Finding:
    """Return the finding of an operator that raised; ``contrast`` says why it should not."""
    return Finding(
        rule=OPERATOR_EXCEPTION.id,
        message=f"The {found.stage} raised {found.refusal}, {contrast}.",
        phase="backward" if found.stage == "backward" else "forward",
        evidence=(("stage", found.stage), ("error", found.refusal)),
    )


def structure_differs(got: TrialCall, expected: TrialCall) -> Finding | None:
    """Return the finding when number, shapes, dtypes or devices of outputs differ."""
    if len(got.outputs) != len(expected.outputs):
        text = f"{len(got.outputs)} output tensors, expected {len(expected.outputs)}"
        return Finding(rule=OUTPUT_STRUCTURE.id, message=f"The operator returned {text}.")
    for index, (value, true) in enumerate(zip(got.outputs, expected.outputs, strict=True)):
        if value.shape == true.shape and value.dtype is true.dtype and value.device == true.device:
            continue
        name = output_name(index, len(got.outputs))
        message = f"The {name} is {_form(value)}, expected {_form(true)}."
        return Finding(rule=OUTPUT_STRUCTURE.id, message=message)
    return None


def written(
    names: Sequence[str],
    after: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> Finding | None:
    """Return the finding when an input changed that the operator does not hand back."""
    for name, now, then in zip(names, after, before, strict=True):
        if same_bits(now, then) or shares_memory(now, outputs):
            continue
        moved = largest(now.detach().double() - then.detach().double())
        return Finding(
            rule=MUTATES_INPUT.id,
            message=f"The operator wrote into {name}: it changed by up to {moved:.3g}, limit 0.",
            operand=name,
            evidence=(("change", moved),),
        )
    return None


def wrong_output(index: int, count: int, found: Deviation) -> Finding:
    """Return the finding of a deviating output."""
    text = describe(output_name(index, count), found)
    return Finding(
        rule=FORWARD_MISMATCH.id,
        message=f"The {text}.",
        evidence=_numbers(found),
    )


def layout_dependent(index: int, count: int, found: Deviation) -> Finding:
    """Return the finding of an output that is another one for contiguous inputs."""
    place = at_index(output_name(index, count), found.index)
    return Finding(
        rule=INPUT_LAYOUT.id,
        message=f"The {place} is {number(found.got)}, and {number(found.expected)} for the same "
        f"values in contiguous memory (difference {found.error:.2g}, limit {found.limit:.2g}).",
        evidence=_numbers(found),
    )


def wrong_gradient(name: str, found: Deviation, *, is_missing: bool) -> Finding:
    """Return the finding of a deviating (or absent) gradient of the input ``name``."""
    place = at_index(name, found.index)
    if is_missing:
        message = f"No gradient arrives at {place}, expected {number(found.expected)}"
    else:
        message = (
            f"The gradient at {place} is {number(found.got)}, expected {number(found.expected)}"
        )
    return Finding(
        rule=(MISSING_GRADIENT if is_missing else BACKWARD_MISMATCH).id,
        message=f"{message} (error {found.error:.2g}, limit {found.limit:.2g}).",
        operand=name,
        phase="backward",
        evidence=_numbers(found),
    )


def wrong_derivative(verdict: Verdict) -> Finding:
    """Return the finding of a gradient that the numerical oracle contradicts."""
    return Finding(
        rule=BACKWARD_MISMATCH.id,
        message=f"The directional derivative is {number(verdict.analytic)}, numerically "
        f"{number(verdict.numeric)} (error bar {verdict.bar:.2g}).",
        phase="backward",
        evidence=(
            ("got", verdict.analytic),
            ("expected", verdict.numeric),
            ("bar", verdict.bar),
        ),
    )


def broken_property(name: str, violation: str) -> Finding:
    """Return the finding of a law that does not hold."""
    return Finding(
        rule=PROPERTY_VIOLATION.id,
        message=f"Property {name!r} does not hold: {violation}.",
        evidence=(("property", name),),
    )


def output_name(index: int, count: int) -> str:
    """Return how messages call an output."""
    return "output" if count == 1 else f"output[{index}]"


def _numbers(found: Deviation) -> tuple[tuple[str, Evidence], ...]:
    return (
        ("got", found.got),
        ("expected", found.expected),
        ("error", found.error),
        ("limit", found.limit),
    )


def _form(tensor: torch.Tensor) -> str:
    place = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{tuple(tensor.shape)} {dtype_name(tensor.dtype)}{place}"

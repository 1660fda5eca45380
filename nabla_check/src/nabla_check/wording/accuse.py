"""Turns a wrong gradient into a verdict: worst element, classified cause, setting."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from nabla_core.issue import Issue, Quantity

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..rules import BACKWARD_MISMATCH, MISSING_GRADIENT
from .classify import Cause, classify
from .compare import Deviation, deviation, largest, same_bits
from .describe import describe, number

__all__ = ["Basis", "mismatch", "missing_gradient", "wrong_gradient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a gradient was held against.

    Attributes:
        truth: where the expected values come from, in words.
        limit: largest absolute error that passes.
        setting: what is needed to see the fault, in words; ``""`` for the inputs as given.
        where: which value of a missing gradient is quoted.
    """

    truth: str
    limit: float = 0.0
    setting: str = ""
    where: str = "at its largest element"

    @property
    def tail(self) -> str:
        """The setting in brackets, to end a sentence with."""
        return f" ({self.setting})" if self.setting else ""


def missing_gradient(
    exam: Examination, name: str, expected: float, basis: Basis, *, got: str = "None"
) -> Issue:
    """Say that no gradient arrives at ``name`` although it should be ``expected`` somewhere."""
    return exam.verdict(
        MISSING_GRADIENT,
        f"No gradient arrives at {name}: got {got}, but by the {basis.truth} it is "
        f"{number(expected)} {basis.where}{basis.tail}.",
        operand=name,
        setting=basis.setting,
        expected=expected,
        truth=basis.truth,
    )


def wrong_gradient(
    exam: Examination,
    point: Baseline,
    which: int,
    pair: tuple[torch.Tensor | None, torch.Tensor],
    basis: Basis,
) -> Issue | None:
    """Return the verdict on the gradient of operand ``which``, or nothing when it is right.

    Args:
        exam: the examination.
        point: where the gradient was taken.
        which: position among the differentiable operands.
        pair: the gradient under test and the true one, same shape.
        basis: what the true one comes from.
    """
    got, expected = pair
    name = point.operands.live_names[which]
    dense = torch.zeros_like(expected) if got is None else got.detach().to(expected.dtype)
    found = deviation(dense, expected, relative=0.0, absolute=basis.limit)
    if found is None:
        return None
    if not bool((dense != 0).any()):
        state = "None" if got is None else "zeros"
        return missing_gradient(exam, name, largest(expected), basis, got=state)
    cause = _lost_slices(exam, point, which) or classify(dense, expected, exam.noise)
    return mismatch(exam, name, found, cause, basis)


def mismatch(exam: Examination, name: str, found: Deviation, cause: Cause, basis: Basis) -> Issue:
    """Make the verdict on a wrong element with its cause."""
    issue = exam.verdict(
        BACKWARD_MISMATCH,
        f"Gradient of {describe(name, found)} by the {basis.truth}: {cause.text}{basis.tail}.",
        operand=name,
        setting=basis.setting,
        error=Quantity(value=found.error, limit=found.limit),
        got=found.got,
        expected=found.expected,
        index=str(list(found.index)),
        pattern=cause.pattern,
        cause=cause.text,
        truth=basis.truth,
    )
    return replace(issue, suggestion=cause.hint)


def _lost_slices(exam: Examination, point: Baseline, which: int) -> Cause | None:
    """Recognise a lost sum or block: the gradient is deaf to the tail of the output's axis 0."""
    if len(point.cotangents) != 1 or point.cotangents[0].dim() == 0:
        return None
    rows = point.cotangents[0].shape[0]
    if point.values[which].numel() >= point.cotangents[0].numel() or rows < 2:
        return None
    if not _is_deaf(exam, point, which, rows - 1) or _is_deaf(exam, point, which, 0):
        return None
    if not _moves_both_ends(exam, point, which):
        return None
    heard, deaf = 0, rows - 1
    while deaf - heard > 1:
        middle = (heard + deaf) // 2
        if _is_deaf(exam, point, which, middle):
            deaf = middle
        else:
            heard = middle
    lost = "sum over it" if deaf == 1 else "last block"
    return Cause(
        pattern="missing reduction" if deaf == 1 else "boundary block",
        text=f"the output's axis 0 is not heard from index {deaf} on: the {lost} is missing",
    )


def _moves_both_ends(exam: Examination, point: Baseline, which: int) -> bool:
    """Whether the first and the last row of the output depend on the operand at all."""
    points = tuple(
        value + (2.0**-10 * (1 + value.abs()) if position == which else 0)
        for position, value in enumerate(point.operands.originals())
    )
    try:
        moved = exam.candidate.values_at(points, point.outputs.live, operands=point.operands)
    except OperatorRaised:
        return False
    return not any(same_bits(moved[0][end], point.output_copies[0][end]) for end in (0, -1))


def _is_deaf(exam: Examination, point: Baseline, which: int, start: int) -> bool:
    tail = torch.zeros_like(point.cotangents[0])
    tail[start:] = point.cotangents[0][start:]
    try:
        heard = exam.candidate.vjp(point.outputs, point.values, (tail,))[which]
    except OperatorRaised:
        return False
    return heard is not None and not bool(heard.any())

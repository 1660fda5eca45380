"""One tensor given for two inputs: its gradient is the sum of the two that copies of it get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import torch

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import Gradients, OperatorRaised
from ..rules import INPUT_LAYOUT
from ..truth.numerical import point_at
from .domain import has_ordinary_gradients, in_domain
from .same_result import OtherCall, compare_call

__all__ = ["aliased_inputs"]

_MOST_PAIRS = 3


def aliased_inputs(exam: Examination) -> Iterator[Issue]:
    """Hand one tensor over for two inputs of equal shape, as ``f(x, x)`` does (CHK213).

    Only code of somebody's own recognises memory; to refuse the call is its good right.
    """
    evaluator = exam.candidate
    if not exam.own_derivatives or evaluator.draws or evaluator.hands_copies:
        return
    for first, second in _pairs(exam):
        try:
            apart = _at_equal_inputs(exam, first, second)
            if in_domain(exam, apart) and has_ordinary_gradients(exam, apart):
                yield from _together(exam, apart, first, second)
        except OperatorRaised:
            continue
        if exam.failed(INPUT_LAYOUT):
            return


def _pairs(exam: Examination) -> list[tuple[int, int]]:
    state = exam.candidate.callee.state()
    values = exam.operands.originals()
    free = [i for i, name in enumerate(exam.operands.live_names) if name not in state]
    alike = [
        (a, b)
        for a, b in combinations(free, 2)
        if values[a].shape == values[b].shape and values[a].dtype is values[b].dtype
    ]
    return alike[:_MOST_PAIRS]


def _at_equal_inputs(exam: Examination, first: int, second: int) -> Baseline:
    values = [x.clone() for x in exam.operands.originals()]
    values[second] = values[first].clone()
    operands = exam.operands.with_values(x.requires_grad_() for x in values)
    return point_at(exam, operands, stage="with equal inputs")


def _together(exam: Examination, apart: Baseline, first: int, second: int) -> Iterator[Issue]:
    shared = list(apart.operands.values())
    shared[second] = shared[first]
    names = exam.operands.live_names
    call = OtherCall(
        operands=apart.operands,
        values=tuple(shared),
        setting=f"one tensor given for {names[first]} and {names[second]}",
        ordinary="with two copies of it",
    )
    summed: list[torch.Tensor | None] = list(apart.gradient_copies)
    summed[first] = summed[second] = _sum(apart.gradient_copies, first, second)
    yield from compare_call(exam, call, replace(apart, gradient_copies=tuple(summed)))


def _sum(gradients: Gradients, first: int, second: int) -> torch.Tensor | None:
    left, right = gradients[first], gradients[second]
    return right if left is None else left if right is None else left + right

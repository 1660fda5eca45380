"""Gradients of some operands while the others are frozen."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..rules import BACKWARD_MISMATCH, MISSING_GRADIENT
from ..wording.describe import describe
from .linearity import worst

__all__ = ["frozen_subsets"]


def frozen_subsets(exam: Examination) -> Iterator[Issue]:
    """Freeze some operands: the gradients of the others must not change (CHK201, CHK202).

    Only code of somebody's own decides by ``needs_input_grad``.
    """
    live = exam.operands.live if exam.own_derivatives else ()
    for chosen in _subsets(len(live)):
        operands = exam.operands.only([live[index] for index in chosen])
        names = ", ".join(operands.live_names)
        stage = f"with only {names} requiring a gradient"
        values = operands.values()
        outputs = exam.candidate.forward(values, operands=operands, stage=f"forward {stage}")
        if len(outputs.live) != len(exam.baseline.cotangents):
            continue
        handed = tuple(u.clone() for u in exam.baseline.cotangents)
        part = exam.candidate.vjp(outputs, values, handed, stage=f"backward {stage}")
        got: list[torch.Tensor | None] = list(exam.baseline.gradient_copies)
        for index, gradient in zip(chosen, part, strict=True):
            got[index] = gradient
        found = worst(exam, tuple(got), exam.baseline.gradient_copies)
        if found is not None:
            which, where = found
            lost = got[which] is None
            yield exam.verdict(
                MISSING_GRADIENT if lost else BACKWARD_MISMATCH,
                f"{stage.capitalize()}, the gradient of "
                f"{describe(exam.operands.live_names[which], where)} as when all do.",
                operand=exam.operands.live_names[which],
                setting=stage,
            )
            return


def _subsets(count: int) -> list[tuple[int, ...]]:
    if count < 2:
        return []
    alone: list[tuple[int, ...]] = [(index,) for index in range(count)]
    without = [tuple(i for i in range(count) if i != index) for index in range(count)]
    wanted = alone if count == 2 else [*alone[:3], *without[-3:]]
    return wanted

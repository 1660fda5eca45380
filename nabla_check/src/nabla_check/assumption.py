"""Which unmarked inputs are data: those that get no gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from nabla_core.issue import Issue

from .examination import Examination
from .inputs.evaluation import OperatorRaised
from .wording.compare import largest

__all__ = ["drop_assumed"]

_STEP = 2.0**-12
_ROUNDING = 2.0**-20
"""Relative change of the outputs under ``_STEP`` below which they do not depend on an input."""


def drop_assumed(exam: Examination) -> Iterator[Issue]:
    """Stop differentiating operands that nobody marked and that get no gradient.

    A note names those that the output depends on: they may be data or forgotten.
    """
    base = exam.baseline
    dropped = [
        position
        for position, (index, gradient) in enumerate(
            zip(exam.operands.live, base.gradients, strict=True)
        )
        if gradient is None and index in exam.operands.assumed
    ]
    if not dropped:
        return
    names = [exam.operands.live_names[position] for position in dropped]
    matters = len(dropped) < len(base.gradients) and _output_depends_on(exam, dropped)
    exam.keep_operands([i for i in range(len(base.gradients)) if i not in dropped])
    if matters:
        yield exam.note(
            f"gradient of {', '.join(names)}",
            "the output depends on it and no gradient arrives; it is taken as data, for it is not "
            "marked with requires_grad",
        )


def _output_depends_on(exam: Examination, positions: Sequence[int]) -> bool:
    base = exam.baseline
    points = tuple(
        value + _STEP * (1 + value.abs()) if position in positions else value
        for position, value in enumerate(base.operands.originals())
    )
    try:
        moved = exam.candidate.values_at(points, base.outputs.live)
    except OperatorRaised:
        return True
    return any(
        not largest(new - old) <= _ROUNDING * _STEP * largest(old)
        for new, old in zip(moved, base.output_copies, strict=True)
        if isinstance(new, torch.Tensor) and new.shape == old.shape
    )

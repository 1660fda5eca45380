"""The same inputs in other memory must give the same outputs and gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.layout_names import Layout
from ..inputs.layouts import changes_memory, relayout
from ..inputs.operands import Operands
from ..rules import INPUT_LAYOUT, OPERATOR_EXCEPTION
from ..truth.numerical import point_at
from .domain import has_ordinary_gradients, in_domain
from .linearity import is_refusal
from .same_result import OtherCall, compare_call

__all__ = ["input_layouts"]


def input_layouts(exam: Examination) -> Iterator[Issue]:
    """Try strided, transposed and repeated inputs (CHK213); a clear refusal is a note."""
    if exam.candidate.draws:
        exam.skip(INPUT_LAYOUT, "random numbers are drawn in the order of memory")
        return
    for layout in _layouts(exam):
        operands = _relaid(exam, layout)
        if operands is not None:
            yield from _try(exam, operands, f"{layout} inputs", exam.baseline)
        if exam.failed(INPUT_LAYOUT):
            return
    if exam.own_derivatives and exam.resolution is not None:
        yield from _equal_rows(exam)


def _equal_rows(exam: Examination) -> Iterator[Issue]:
    """Hand over equal rows once in dense memory and once with stride 0, as ``expand`` makes."""
    state = exam.candidate.callee.state()
    leaves = {
        index: relayout(leaf, "rows").requires_grad_()
        for index, leaf in zip(exam.operands.live, exam.operands.originals(), strict=True)
        if changes_memory(leaf, "rows") and exam.operands.names[index] not in state
    }
    if not leaves:
        return
    dense = exam.operands.replaced(
        {index: leaf.detach().contiguous().requires_grad_() for index, leaf in leaves.items()}
    )
    try:
        point = point_at(exam, dense, stage="at equal rows")
    except OperatorRaised:
        return  # beyond the operator's domain, as a singular matrix
    if in_domain(exam, point) and has_ordinary_gradients(exam, point):
        yield from _try(exam, exam.operands.replaced(dict(leaves)), "rows of stride 0", point)


def _try(exam: Examination, operands: Operands, setting: str, truth: Baseline) -> Iterator[Issue]:
    try:
        call = OtherCall(
            operands=operands,
            values=operands.values(),
            setting=setting,
            ordinary="with contiguous ones",
        )
        yield from compare_call(exam, call, truth)
    except OperatorRaised as raised:
        if is_refusal(raised):
            yield exam.note(setting, f"refused by {raised.summary}", phase="forward")
            return
        yield exam.verdict(
            OPERATOR_EXCEPTION,
            f"With {setting} the {raised.stage} raised {raised.summary}.",
            phase="forward",
            setting=setting,
        )


def _layouts(exam: Examination) -> tuple[Layout, ...]:
    """Torch's own kernels know strides; there one layout shows a composition that does not."""
    if exam.own_derivatives or exam.options.demands("layout"):
        return "strided", "transposed", "channels_last"
    flat = all(x.dim() < 2 for x in exam.baseline.values)
    return ("strided",) if flat else ("transposed",)


def _relaid(exam: Examination, layout: Layout) -> Operands | None:
    state = exam.candidate.callee.state()
    changes: dict[int, object] = {
        index: relayout(leaf, layout)
        for index, leaf in enumerate(exam.operands.tree.leaves)
        if isinstance(leaf, torch.Tensor)
        and exam.operands.names[index] not in state
        and changes_memory(leaf, layout)
    }
    return exam.operands.replaced(changes) if changes else None

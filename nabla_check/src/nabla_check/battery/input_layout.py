"""The same inputs in other memory must give the same outputs and gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..inputs.evaluation import OperatorRaised, Outputs
from ..inputs.layouts import Layout, changes_memory, relayout
from ..inputs.operands import Operands
from ..rules import INPUT_LAYOUT, OPERATOR_EXCEPTION
from ..truth.conditioning import output_floors
from ..wording.compare import deviation
from ..wording.describe import describe
from .linearity import is_refusal, worst

__all__ = ["input_layouts"]


def input_layouts(exam: Examination) -> Iterator[Issue]:
    """Try strided and transposed inputs (CHK213); a clear refusal is a note."""
    if exam.candidate.draws:
        exam.skip(INPUT_LAYOUT, "random numbers are drawn in the order of memory")
        return
    for layout in _layouts(exam):
        operands = _relaid(exam, layout)
        if operands is None:
            continue
        setting = f"{layout} inputs"
        try:
            yield from _compare(exam, operands, setting)
        except OperatorRaised as raised:
            if is_refusal(raised):
                yield exam.note(setting, f"refused by {raised.summary}", phase="forward")
                continue
            yield exam.verdict(
                OPERATOR_EXCEPTION,
                f"With {setting} the {raised.stage} raised {raised.summary}.",
                phase="forward",
                setting=setting,
            )
        if exam.failed(INPUT_LAYOUT):
            return


def _layouts(exam: Examination) -> tuple[Layout, ...]:
    """Torch's own kernels know strides; there one layout shows a composition that does not."""
    if exam.own_derivatives or exam.options.demands("layout"):
        return "strided", "transposed"
    flat = all(x.dim() < 2 for x in exam.baseline.values)
    return ("strided",) if flat else ("transposed",)


def _relaid(exam: Examination, layout: Layout) -> Operands | None:
    state = {*exam.candidate.callee.parameters(), *exam.candidate.callee.buffers()}
    changes: dict[int, object] = {
        index: relayout(leaf, layout)
        for index, leaf in enumerate(exam.operands.tree.leaves)
        if isinstance(leaf, torch.Tensor)
        and exam.operands.names[index] not in state
        and changes_memory(leaf, layout)
    }
    return exam.operands.replaced(changes) if changes else None


def _compare(exam: Examination, operands: Operands, setting: str) -> Iterator[Issue]:
    base = exam.baseline
    values = operands.values()
    outputs = exam.candidate.forward(values, operands=operands, stage="forward")
    wrong = _outputs_differ(exam, outputs, setting)
    if wrong is not None:
        yield wrong
        return
    handed = tuple(u.clone() for u in base.cotangents)
    gradients = exam.candidate.vjp(outputs, values, handed)
    found = worst(exam, gradients, base.gradient_copies)
    if found is None:
        return
    which, where = found
    name = exam.operands.live_names[which]
    yield exam.verdict(
        INPUT_LAYOUT,
        f"With {setting} the gradient of {describe(name, where)} as with contiguous ones.",
        operand=name,
        setting=setting,
        got=where.got,
        expected=where.expected,
    )


def _outputs_differ(exam: Examination, outputs: Outputs, setting: str) -> Issue | None:
    base = exam.baseline
    if len(outputs.live) != len(base.outputs.live):
        return None
    floors: list[float] | None = None
    tolerance = max(1e-9, exam.tolerance)
    for position, (a, b) in enumerate(zip(outputs.differentiable, base.output_copies, strict=True)):
        if a.shape != b.shape:
            return exam.verdict(
                INPUT_LAYOUT,
                f"With {setting} the output has shape {list(a.shape)}, expected {list(b.shape)}.",
                phase="forward",
                setting=setting,
            )
        if deviation(a, b, relative=tolerance) is None:
            continue
        if floors is None:
            every = output_floors(
                exam.candidate, exam.operands, base.outputs, exam.generator, exam.unit
            )
            live = [x.requires_grad for x in base.outputs.tensors]
            floors = [floor for floor, is_live in zip(every, live, strict=True) if is_live]
        found = deviation(a, b, relative=tolerance, absolute=floors[position])
        if found is not None:
            name = base.outputs.live_names[position]
            return exam.verdict(
                INPUT_LAYOUT,
                f"With {setting} the {describe(name, found)} as with contiguous ones.",
                operand=name,
                phase="forward",
                setting=setting,
                got=found.got,
                expected=found.expected,
            )
    return None

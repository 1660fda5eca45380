"""Memory that a backward still needs must survive: writes by others, writes by backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nabla_core.issue import Issue

from ..examination import Examination
from ..inputs.evaluation import Gradients, OperatorRaised, Outputs
from ..inputs.layouts import shares_memory
from ..inputs.operands import Values, is_differentiable
from ..rules import MUTATES_SAVED, STATE_LEAK
from ..truth.authorship import nodes_of
from ..wording.compare import largest, same_bits
from ..wording.describe import describe
from .linearity import worst

__all__ = ["explain_by_memory", "written_later"]


def written_later(exam: Examination) -> Iterator[Issue]:
    """Write into outputs, then into inputs, after the call: autograd must notice, or the gradient
    must stay right (CHK233). Torch's own formulas are guarded by its version counters, and where
    every later call changes the gradient, as CHK223 has said, a write proves nothing more."""
    if not exam.own_derivatives or exam.failed(STATE_LEAK):
        return
    for what, write in (("output", _write_outputs), ("input", _write_inputs)):
        try:
            gradients = write(exam)
        except (OperatorRaised, RuntimeError):
            continue  # refused or noticed: the loud and healthy case
        if gradients is None:
            continue
        found = worst(exam, gradients, exam.baseline.gradient_copies)
        if found is None:
            continue
        which, where = found
        name = exam.operands.live_names[which]
        yield exam.verdict(
            MUTATES_SAVED,
            f"After an in-place write into the {what}, the gradient of {describe(name, where)}, "
            f"and autograd raised no error: the {what} is kept without save_for_backward.",
            operand=name,
            setting=f"in-place write into the {what} between forward and backward",
            got=where.got,
            expected=where.expected,
        )
        return


def _write_outputs(exam: Examination) -> Gradients | None:
    values = exam.operands.values()
    outputs = exam.candidate.forward(values, stage="forward before a write into the output")
    changed = [x.add_(1.0 + largest(x)) for x in outputs.differentiable]
    handed = tuple(u.clone() for u in exam.baseline.cotangents)
    return exam.candidate.pull(changed, values, handed, stage="backward after a write")


def _write_inputs(exam: Examination) -> Gradients | None:
    evaluator = exam.candidate
    values = exam.operands.values()
    usual, evaluator.hands_copies = evaluator.hands_copies, True
    try:
        outputs = evaluator.forward(values, stage="forward before a write into the input")
    finally:
        evaluator.hands_copies = usual
    with torch.no_grad():
        for index in exam.operands.live:
            leaf = evaluator.handed[index]
            if isinstance(leaf, torch.Tensor) and not shares_memory(leaf, outputs.tensors):
                leaf.add_(1.0 + largest(leaf))
    handed = tuple(u.clone() for u in exam.baseline.cotangents)
    return evaluator.vjp(outputs, values, handed, stage="backward after a write")


@dataclass(slots=True)
class _Kept:
    """A tensor that the graph keeps, with a copy of its first content."""

    owner: str
    tensor: torch.Tensor
    copy: torch.Tensor

    @property
    def changed(self) -> bool:
        return not same_bits(self.tensor, self.copy)


@dataclass(slots=True)
class _Ledger:
    """Everything that was saved in one forward call, in order."""

    kept: list[_Kept] = field(default_factory=list)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        shared = tensor.detach()
        self.kept.append(_Kept("a saved tensor", shared, shared.clone()))
        return shared

    @staticmethod
    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which memory is written by operations that autograd records.

    The forward of an ``autograd.Function`` runs without recording, so its own writes do not count.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: dict[int, str] = {}
        self.held: list[torch.Tensor] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if torch.is_grad_enabled() and func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                writes = argument.alias_info is not None and argument.alias_info.is_write
                if writes and isinstance(value, torch.Tensor):
                    self.written[value.untyped_storage().data_ptr()] = str(func.name())
                    self.held.append(value)
        return func(*args, **(kwargs or {}))


def explain_by_memory(exam: Examination) -> Iterator[Issue]:
    """After a wrong gradient, look whether kept memory was overwritten (CHK233).

    Run only then, so that a harmless write is never accused.
    """
    ledger = _Ledger()
    values = exam.operands.values()
    with _Writes() as writes, torch.autograd.graph.saved_tensors_hooks(ledger.pack, ledger.unpack):
        outputs = exam.candidate.forward(values, stage="forward under observation")
    attributes = list(_attributes(outputs))
    for kept in attributes:
        culprit = writes.written.get(kept.tensor.untyped_storage().data_ptr())
        if culprit is not None:
            yield _overwritten(
                exam, f"{kept.owner} was overwritten by {culprit} after it was kept", "forward"
            )
            return
    if any(kept.changed for kept in ledger.kept):
        yield _overwritten(exam, "a saved tensor was overwritten later in the forward", "forward")
        return
    yield from _during_backward(exam, values, outputs, [*attributes, *ledger.kept])


def _during_backward(
    exam: Examination, values: Values, outputs: Outputs, kept: Sequence[_Kept]
) -> Iterator[Issue]:
    handed = tuple(u.clone() for u in exam.baseline.cotangents)
    exam.candidate.vjp(outputs, values, handed, stage="backward under observation")
    changed = [entry for entry in kept if entry.changed]
    if changed:
        moved = largest(changed[0].tensor - changed[0].copy)
        yield _overwritten(
            exam,
            f"{changed[0].owner} was overwritten by a backward (changed by up to {moved:.3g}, "
            "limit 0)",
            "backward",
        )


def _overwritten(exam: Examination, what: str, stage: str) -> Issue:
    consequence = next((x for x in exam.issues if x.severity >= MUTATES_SAVED.severity), None)
    proof = f": {consequence.message}" if consequence is not None else "."
    return exam.verdict(
        MUTATES_SAVED,
        f"Memory that a backward needs changed past autograd's version check, for {what}{proof}",
        operand=consequence.where.parameter if consequence and consequence.where else None,
        cause=f"memory that a backward needs is overwritten in the {stage}",
    )


def _attributes(outputs: Outputs) -> Iterator[_Kept]:
    """Tensors kept as attributes of ``ctx``, on the nodes of Python functions."""
    for node in nodes_of(outputs.differentiable):
        for name, value in getattr(node, "__dict__", {}).items():
            if isinstance(value, torch.Tensor) and is_differentiable(value):
                yield _Kept(f"ctx.{name} of {node.name()}", value.detach(), value.detach().clone())

"""The baseline call: runs forward and backward once and looks at everything that they touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from nabla_core.issue import Issue

from .battery.reference import reference_at
from .examination import Baseline, Examination
from .inputs import rng
from .inputs.evaluation import Cotangents, OperatorRaised, Outputs
from .inputs.layouts import shares_memory
from .inputs.operands import Values, is_differentiable
from .rules import MUTATES_COTANGENT, MUTATES_INPUT, OUTPUT_STRUCTURE
from .truth.authorship import has_own_derivatives
from .truth.precision_choice import measure_resolution
from .wording.compare import largest, same_bits

__all__ = ["establish"]

_LEAF_WRITTEN = "leaf Variable that requires grad"


def establish(exam: Examination) -> Iterator[Issue]:
    """Make the baseline of ``exam``; yields what the two calls do to memory that is not theirs.

    Raises:
        OperatorRaised: the operator raised.
    """
    values, outputs, before = _first_call(exam)
    yield from _written(exam, values, outputs, "forward")
    if not outputs.tensors:
        kind = type(outputs.tree.leaves[0]).__name__ if outputs.tree.leaves else "nothing"
        yield exam.verdict(
            OUTPUT_STRUCTURE,
            f"The operator returned {kind} and no tensor, expected at least 1 tensor.",
            phase="forward",
        )
        return
    yield from measure_resolution(exam, outputs)
    cotangents = exam.draw([x.detach() for x in outputs.differentiable])
    handed = tuple(x.clone() for x in cotangents)
    copies = tuple(x.detach().clone() for x in outputs.differentiable)
    gradients = exam.candidate.vjp(outputs, values, handed)
    exam.own_derivatives = has_own_derivatives(outputs.differentiable)
    yield from _cotangents_written(exam, outputs.live_names, cotangents, handed)
    if exam.own_derivatives:  # torch's own formulas neither draw random numbers nor write
        exam.drawn_backward = rng.changed(before, rng.capture())
        yield from _written(exam, values, outputs, "backward")
    exam.base = Baseline(
        operands=exam.operands,
        values=values,
        outputs=outputs,
        cotangents=cotangents,
        gradients=gradients,
        output_copies=copies,
        gradient_copies=tuple(None if g is None else g.detach().clone() for g in gradients),
    )


def _first_call(exam: Examination) -> tuple[Values, Outputs, rng.RandomState]:
    """Call once and learn whether the operator draws random numbers or writes into its inputs."""
    evaluator = exam.candidate
    values = exam.operands.values()
    rng.restore(evaluator.start)
    try:
        outputs = evaluator.forward(values)
    except OperatorRaised as raised:
        if _LEAF_WRITTEN not in str(raised.error):
            raise
        evaluator.hands_copies = True
        values = exam.operands.values()
        outputs = evaluator.forward(values)
    after = rng.capture()
    exam.drawn_forward = rng.changed(evaluator.start, after)
    evaluator.stochastic = bool(exam.drawn_forward)
    if "numpy" in exam.drawn_forward:
        evaluator.start = rng.seeded(exam.seed, evaluator.start, with_numpy=True)
        if exam.reference is not None:
            exam.reference.start = evaluator.start
        values = exam.operands.values()
        outputs = evaluator.forward(values)
        after = rng.capture()
    return values, outputs, after


def _written(exam: Examination, values: Values, outputs: Outputs, stage: str) -> Iterator[Issue]:
    """Yield inputs that changed although nothing announces it."""
    if exam.candidate.hands_copies or exam.failed(MUTATES_INPUT):
        return
    originals = exam.operands.tree.leaves
    for index, leaf in enumerate(exam.candidate.handed):
        before = originals[index]
        name = exam.operands.names[index]
        if not isinstance(leaf, torch.Tensor) or not isinstance(before, torch.Tensor):
            continue
        if same_bits(leaf, before) or _announced(exam, leaf, name, outputs):
            continue
        if stage == "forward" and index in exam.operands.frozen and _reference_writes(exam, index):
            continue
        moved = _largest_change(leaf, before)
        yield exam.verdict(
            MUTATES_INPUT,
            f"The {stage} wrote into {name}: it changed by up to {moved:.3g}, limit 0.",
            operand=name,
            phase="forward" if stage == "forward" else "backward",
            stage=stage,
            change=moved,
        )


def _announced(exam: Examination, leaf: torch.Tensor, name: str, outputs: Outputs) -> bool:
    """Whether the write is the operator's declared business: state, or an in-place result."""
    if name in exam.candidate.callee.buffers() or name.startswith("running_"):
        return True
    return shares_memory(leaf, outputs.tensors)


def _reference_writes(exam: Examination, index: int) -> bool:
    """Whether the reference leaves the same in a leaf that it may keep its state in."""
    if exam.reference is None:
        return False
    try:
        reference_at(exam.reference, exam.operands)
    except OperatorRaised:
        return False
    mine, theirs = exam.candidate.handed[index], exam.reference.handed[index]
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    return same_bits(mine, theirs)


def _largest_change(leaf: torch.Tensor, before: torch.Tensor) -> float:
    if not is_differentiable(leaf):
        return float((leaf.detach() != before).sum())
    return largest(leaf.detach() - before.detach())


def _cotangents_written(
    exam: Examination, names: Sequence[str], kept: Cotangents, handed: Cotangents
) -> Iterator[Issue]:
    for name, before, after in zip(names, kept, handed, strict=True):
        if not same_bits(before, after):
            moved = _largest_change(after, before)
            yield exam.verdict(
                MUTATES_COTANGENT,
                f"The backward wrote into the incoming gradient of {name}: it changed by up to "
                f"{moved:.3g}, limit 0.",
                operand=name,
                change=moved,
            )

"""Chooses the precision in which formulas are judged: float64 where the operator allows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from nabla_core.issue import Issue

from ..examination import Examination
from ..inputs.evaluation import OperatorRaised, Outputs
from ..inputs.operands import Operands, is_differentiable
from .conditioning import disturbed
from .resolution import resolution_of

__all__ = ["choose_precision", "measure_resolution"]

_WIDE = (torch.float64, torch.complex128)


def choose_precision(exam: Examination) -> None:
    """Set ``exam.operands`` to float64 copies when the operator computes in float64 with them."""
    dtypes = _dtypes(exam.given)
    exam.operands = exam.given
    if all(dtype in _WIDE for dtype in dtypes):
        return
    wide = exam.given.cast(torch.float64)
    if _computes_wide(exam, wide):
        exam.operands = wide
    exam.candidate.operands = exam.operands
    if exam.reference is not None:
        exam.reference.operands = exam.operands


def measure_resolution(exam: Examination, outputs: Outputs) -> Iterator[Issue]:
    """Set ``exam.resolution`` to that of the coarsest dtype among operands and outputs.

    An operator that computes in lower precision inside counts by what it really delivers, and a
    note says so.
    """
    dtypes = [*_dtypes(exam.operands), *(x.dtype for x in outputs.differentiable)]
    inside = _inner_dtype(exam.operands.originals(), outputs)
    exam.resolution = resolution_of(dtypes if inside is None else [*dtypes, inside])
    if inside is not None:
        yield exam.note(
            "float64",
            "for float64 inputs the outputs have the digits of float32 only, so relative errors "
            f"below {exam.tolerance:g} are not seen",
            phase="forward",
        )


def _dtypes(operands: Operands) -> list[torch.dtype]:
    leaves = [operands.tree.leaves[index] for index in operands.live]
    return [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _computes_wide(exam: Examination, wide: Operands) -> bool:
    """Call away from the values of the narrow dtype, to see whether the results keep all digits."""
    points = disturbed(wide.originals(), 2.0**-30, exam.generator)
    values = tuple(x.requires_grad_() for x in points)
    try:
        outputs = exam.candidate.forward(values, operands=wide, stage="forward in float64")
    except OperatorRaised:
        return False
    if _inner_dtype(points, outputs) is not None:
        return False
    return all(x.dtype in _WIDE for x in outputs.tensors if is_differentiable(x))


def _inner_dtype(values: Sequence[torch.Tensor], outputs: Outputs) -> torch.dtype | None:
    """Return float32 when it holds all outputs exactly, but not the inputs.

    Outputs that fit into half precision too, as rounded numbers, say nothing.
    """
    results = [x.detach() for x in outputs.differentiable if x.dtype is torch.float64]
    if not all(_fits(x, torch.float32) for x in results):
        return None
    inputs = [x.detach() for x in values if x.dtype is torch.float64]
    if all(_fits(x, torch.bfloat16) or _fits(x, torch.float16) for x in results):
        return None
    return None if all(_fits(x, torch.float32) for x in inputs) else torch.float32


def _fits(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    return torch.equal(tensor.to(dtype).to(tensor.dtype), tensor)

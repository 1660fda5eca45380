"""Forward mode against the gradient: <u, J v> must equal <J'u, v>."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch.autograd import forward_ad

from nabla_core.issue import Issue, Quantity

from ..examination import Examination
from ..inputs.evaluation import OperatorRaised
from ..rules import JVP_MISMATCH
from ..truth.conditioning import disturbed, gradient_floors
from ..truth.numerical import curve_along, ladder_of
from ..truth.oracle import judge
from ..truth.products import inner, norm_of_products, steps_for
from ..wording.compare import is_finite, largest
from ..wording.describe import apart

__all__ = ["forward_derivatives"]

_MOST_SINGLE = 3


def forward_derivatives(exam: Examination) -> Iterator[Issue]:
    """Judge the JVP, for all operands at once and for each alone (CHK203)."""
    if exam.is_negligible(exam.baseline.gradient_copies) and not exam.own_derivatives:
        exam.skip(JVP_MISMATCH, "the gradient is zero")
        return
    directions = steps_for(exam.baseline.values, exam.generator)
    count = len(directions)
    settings = [tuple(range(count))]
    if 2 <= count <= _MOST_SINGLE and exam.own_derivatives:
        settings += [(index,) for index in range(count)]
    for chosen in settings:
        try:
            tangents = _push(exam, directions, chosen, exam.operands.originals())
        except OperatorRaised as raised:
            exam.skip(JVP_MISMATCH, f"forward mode refused by {raised.summary}")
            return
        if all(tangent is None for tangent in tangents):
            exam.skip(JVP_MISMATCH, "forward mode delivers no tangent")
            return
        if any(t is not None and not is_finite(t) for t in tangents):
            exam.skip(JVP_MISMATCH, "the forward-mode derivative is not finite")
            return
        yield from _judge(exam, directions, chosen, tangents)
        if exam.failed(JVP_MISMATCH):
            return


def _push(
    exam: Examination,
    directions: Sequence[torch.Tensor],
    chosen: Sequence[int],
    points: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore")  # torch compiles decompositions at the first dual number
        duals = tuple(
            _dual(point.clone(), direction) if index in chosen else point.clone()
            for index, (point, direction) in enumerate(zip(points, directions, strict=True))
        )
        outputs = exam.candidate.forward(duals, stage="forward mode")
        return [_tangent(tensor) for tensor in outputs.pick(exam.baseline.outputs.live)]


def _dual(point: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    dual: torch.Tensor = forward_ad.make_dual(point, direction)  # type: ignore[no-untyped-call]
    return dual


def _tangent(tensor: torch.Tensor) -> torch.Tensor | None:
    tangent: torch.Tensor | None
    tangent = forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]
    return tangent


def _judge(
    exam: Examination,
    directions: Sequence[torch.Tensor],
    chosen: Sequence[int],
    tangents: Sequence[torch.Tensor | None],
) -> Iterator[Issue]:
    base = exam.baseline
    kept = [v if index in chosen else None for index, v in enumerate(directions)]
    got = inner(tangents, base.cotangents)
    expected = inner(base.gradient_copies, kept)
    scale = norm_of_products(tangents, base.cotangents)
    scale += norm_of_products(base.gradient_copies, kept)
    limit = max(1e-9, exam.tolerance) * scale + 1e-300
    if abs(got - expected) <= limit:
        return
    floors = gradient_floors(
        exam.candidate, exam.operands, base.cotangents, exam.generator, exam.unit
    )
    limit += sum(
        floor * largest(v) * v.numel() ** 0.5 for floor, v in zip(floors, directions, strict=True)
    )
    if abs(got - expected) > limit:
        limit += _noise(exam, directions, chosen, got)
    if abs(got - expected) <= limit or not _confirmed(exam, kept, got, scale):
        return
    names = ", ".join(exam.operands.live_names[index] for index in chosen)
    mine, theirs = apart(got, expected)
    setting = "" if len(chosen) == len(directions) else f" with a tangent of {names} only"
    yield exam.verdict(
        JVP_MISMATCH,
        f"Forward mode{setting} gives {mine} along a random direction, the gradient "
        f"{theirs} (limit {limit:.2g}).",
        operand=names,
        phase="forward",
        error=Quantity(value=abs(got - expected), limit=limit),
        got=got,
        expected=expected,
    )


def _noise(
    exam: Examination, directions: Sequence[torch.Tensor], chosen: Sequence[int], got: float
) -> float:
    """Change of the JVP under a few units in the last place, with room for a dozen roundings."""
    points = disturbed(exam.operands.originals(), 4 * exam.unit, exam.generator)
    moved = _push(exam, directions, chosen, points)
    return 16 * abs(inner(moved, exam.baseline.cotangents) - got)


def _confirmed(
    exam: Examination, kept: Sequence[torch.Tensor | None], got: float, scale: float
) -> bool:
    """Whether the numerical derivative blames the JVP and not the gradient."""
    if exam.resolution is None:
        return True
    verdict = judge(curve_along(exam, exam.baseline, kept), got, scale, ladder_of(exam))
    return verdict.state == "differs"

"""Rounding error in low precision, against float64 on the same rounded inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from nabla_core.issue import Issue, Quantity

from ..examination import Examination
from ..inputs.evaluation import Cotangents, Evaluator, OperatorRaised
from ..inputs.operands import Operands
from ..rules import KINK, OPERATOR_EXCEPTION, OUTPUT_STRUCTURE, PRECISION
from ..truth.conditioning import disturbed
from ..wording.classify import classify
from ..wording.compare import Deviation, deviation, is_finite, largest
from ..wording.describe import apart, at_index, dtype_name
from .reference import reference_raises

__all__ = ["low_precision"]

_ROUNDINGS = 8.0
"""Roundings of a result that go unnoticed, in units of its largest element."""
_SENSITIVITY = 4.0
_FLOORS = 4.0
_FLOORS_ALONE = 16.0
"""Without a reference the floor is an estimate: a chain of roundings may be longer."""
_WORSE = 8.0
_SAMPLES = 2
_BRANCH = 0.5
_HALF_EPS = 2.0**-12
"""Between the spacing of float32 and of float16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Outputs and gradients of one call, aligned with their names."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor | None, ...]
    dtypes: tuple[torch.dtype, ...]


def low_precision(exam: Examination) -> Iterator[Issue]:
    """Compare errors in each dtype with the rounding floor and the reference's error (CHK241)."""
    if exam.candidate.draws:
        exam.skip(PRECISION, "each dtype draws other random numbers")
        return
    if exam.reference is not None and exam.failed(KINK):
        exam.skip(PRECISION, "at the given input torch's own formula in the reference is no truth")
        return
    given = exam.given_dtype
    for dtype in _dtypes(exam, given):
        low = exam.given.only(exam.operands.live).cast(dtype)
        try:
            for cotangents in _quantised_cotangents(exam, dtype):
                found = list(_in_dtype(exam, low, dtype, cotangents))
                yield from found
                if found or PRECISION.id in exam.skipped:
                    break
        except OperatorRaised as raised:
            if dtype is given and not reference_raises(exam, low):
                yield exam.verdict(
                    OPERATOR_EXCEPTION,
                    f"In {dtype_name(dtype)} the {raised.stage} raised {raised.summary}.",
                    setting=dtype_name(dtype),
                )
            else:
                exam.skip(PRECISION, f"{dtype_name(dtype)} refused by {raised.summary}")


def _dtypes(exam: Examination, given: torch.dtype | None) -> Sequence[torch.dtype]:
    if exam.options.dtypes is not None:
        return exam.options.dtypes
    if given is None or given is torch.float64:
        return (torch.float32,)
    return (given,)


def _in_dtype(
    exam: Examination, low: Operands, dtype: torch.dtype, cotangents: Cotangents
) -> Iterator[Issue]:
    wide = low.cast(torch.float64)
    judge = exam.reference or exam.candidate
    got = _run(exam.candidate, low, cotangents, dtype)
    if got is None:
        exam.skip(PRECISION, f"{dtype_name(dtype)} inputs give other outputs than float64")
        return
    truth = _truth(judge, wide, cotangents)
    if truth is None:
        who = "candidate" if exam.reference is None else "reference"
        exam.skip(PRECISION, f"the {who} gives no result with float64, so there is no truth")
        return
    if any(t.is_floating_point and t is not torch.float64 for t in truth.dtypes):
        exam.skip(PRECISION, "float64 inputs do not give float64 outputs, so there is no truth")
        return
    if any(d.is_floating_point and d is not dtype for d in got.dtypes):
        yield from _other_dtype(exam, low, cotangents, dtype, got)
        return
    if exam.reference is None and _takes_another_branch(got, truth, len(cotangents)):
        reason = (
            "its outputs are far from those in float64; only a reference can tell which is right"
        )
        exam.skip(PRECISION, f"{dtype_name(dtype)}: {reason}")
        yield exam.note(dtype_name(dtype), reason, phase="forward")
        return
    yield from _errors(exam, low, cotangents, dtype, (got, truth))


def _takes_another_branch(got: _Run, truth: _Run, outputs: int) -> bool:
    """Whether an output differs by half its size, as an eigenvector whose sign is free."""
    pairs = zip(got.tensors[:outputs], truth.tensors[:outputs], strict=True)
    return any(
        a is not None and b is not None and largest(a.to(b.dtype) - b) > _BRANCH * largest(b)
        for a, b in pairs
    )


def _truth(judge: Evaluator, wide: Operands, cotangents: Sequence[torch.Tensor]) -> _Run | None:
    try:
        return _run(judge, wide, cotangents, torch.float64)
    except OperatorRaised:
        return None


def _rival(
    exam: Examination, low: Operands, cotangents: Sequence[torch.Tensor], dtype: torch.dtype
) -> _Run | None:
    """Run the reference in the same dtype, when there is one."""
    return None if exam.reference is None else _run(exam.reference, low, cotangents, dtype)


def _other_dtype(
    exam: Examination,
    low: Operands,
    cotangents: Sequence[torch.Tensor],
    dtype: torch.dtype,
    got: _Run,
) -> Iterator[Issue]:
    rival = _rival(exam, low, cotangents, dtype)
    if rival is None or rival.dtypes == got.dtypes:
        exam.skip(PRECISION, f"{dtype_name(dtype)} inputs give outputs of another dtype")
        return
    mine, theirs = (", ".join(map(dtype_name, run.dtypes)) for run in (got, rival))
    yield exam.verdict(
        OUTPUT_STRUCTURE,
        f"With {dtype_name(dtype)} inputs the outputs are {mine}, the reference's {theirs}.",
        phase="forward",
        setting=dtype_name(dtype),
    )


def _quantised_cotangents(exam: Examination, dtype: torch.dtype) -> Iterator[Cotangents]:
    """Yield cotangents that ``dtype`` holds; for code of somebody's own also some of one sign.

    Sums of many terms of one sign show an accumulator of half precision, which stops growing.
    """
    signed = tuple(u.to(_partner(u, dtype)).to(u.dtype) for u in exam.baseline.cotangents)
    yield signed
    if exam.own_derivatives and torch.finfo(dtype).eps > _HALF_EPS:
        yield tuple(u if u.is_complex() else u.abs() for u in signed)


def _partner(tensor: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    if not tensor.is_complex():
        return dtype
    narrow = {torch.float32: torch.complex64, torch.float16: torch.complex32}
    return narrow.get(dtype, torch.complex128)


def _run(
    evaluator: Evaluator, operands: Operands, cotangents: Sequence[torch.Tensor], dtype: torch.dtype
) -> _Run | None:
    values = operands.values()
    outputs = evaluator.forward(values, operands=operands, stage=f"forward in {dtype_name(dtype)}")
    live = outputs.differentiable
    if len(live) != len(cotangents):
        return None
    handed = tuple(u.to(y.dtype) for u, y in zip(cotangents, live, strict=True))
    if any(u.shape != y.shape for u, y in zip(handed, live, strict=True)):
        return None
    gradients = evaluator.vjp(outputs, values, handed, stage=f"backward in {dtype_name(dtype)}")
    return _Run(
        names=(*outputs.live_names, *(f"gradient of {name}" for name in operands.live_names)),
        tensors=(*(y.detach() for y in live), *gradients),
        dtypes=tuple(y.dtype for y in outputs.tensors),
    )


def _errors(
    exam: Examination,
    low: Operands,
    cotangents: Sequence[torch.Tensor],
    dtype: torch.dtype,
    runs: tuple[_Run, _Run],
) -> Iterator[Issue]:
    got, truth = runs
    finfo = torch.finfo(dtype)
    rival: _Run | None = None
    moved: list[float] | None = None
    for index, (mine, exact) in enumerate(zip(got.tensors, truth.tensors, strict=True)):
        if mine is None or exact is None or not mine.numel():
            continue
        if not is_finite(exact) or largest(exact) > finfo.max / 8:
            continue
        if largest(exact) <= 2.0**-40:  # cancelled to nothing but rounding
            continue
        floor = _ROUNDINGS * finfo.eps / 2 * largest(exact) + 8 * finfo.tiny
        if deviation(mine, exact, relative=0.0, absolute=_FLOORS * floor) is None:
            continue
        if moved is None:
            moved = _sensitivities(exam, low, cotangents, dtype, truth)
            rival = _rival(exam, low, cotangents, dtype)
        floor += _SENSITIVITY * moved[index]
        other = None if rival is None else rival.tensors[index]
        theirs = None if other is None else largest(other.to(exact.dtype) - exact)
        room = _FLOORS_ALONE if theirs is None else _FLOORS
        limit = max(room * floor, 0.0 if theirs is None else _WORSE * theirs)
        found = deviation(_excused(mine, exact, other), exact, relative=0.0, absolute=limit)
        if found is not None:
            yield _verdict(exam, got.names[index], dtype, found, (floor, theirs), (mine, exact))
            return


def _excused(mine: torch.Tensor, exact: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor:
    """Return ``mine`` without the overflows that the reference has too."""
    if other is None or is_finite(other):
        return mine
    both = ~torch.isfinite(mine) & ~torch.isfinite(other)
    return torch.where(both, exact, mine.to(exact.dtype))


def _sensitivities(
    exam: Examination,
    low: Operands,
    cotangents: Sequence[torch.Tensor],
    dtype: torch.dtype,
    truth: _Run,
) -> list[float]:
    """Change of the exact results when inputs and cotangents are rounded once more.

    Infinite for a result that is nothing but float64 rounding, as one that cancels to zero: its
    relative error means nothing.
    """
    unit = torch.finfo(dtype).eps / 2
    moved = [0.0] * len(truth.tensors)
    for _ in range(_SAMPLES):
        changes = _changes(exam, low, cotangents, unit, truth)
        moved = [max(a, b) for a, b in zip(moved, changes, strict=True)]
    noise = _changes(exam, low, cotangents, 2.0**-50, truth)
    return [
        math.inf if shaken > 1e-3 * largest(exact) else change
        for change, shaken, exact in zip(moved, noise, truth.tensors, strict=True)
    ]


def _changes(
    exam: Examination,
    low: Operands,
    cotangents: Sequence[torch.Tensor],
    relative: float,
    truth: _Run,
) -> list[float]:
    judge = exam.reference or exam.candidate
    wide = low.cast(torch.float64)
    points = wide.with_values(
        x.requires_grad_() for x in disturbed(wide.originals(), relative, exam.generator)
    )
    weights = disturbed(cotangents, relative, exam.generator)
    other = _run(judge, points, weights, torch.float64)
    if other is None:
        return [0.0] * len(truth.tensors)
    return [
        0.0 if a is None or b is None else largest(a - b)
        for a, b in zip(other.tensors, truth.tensors, strict=True)
    ]


def _verdict(
    exam: Examination,
    name: str,
    dtype: torch.dtype,
    found: Deviation,
    context: tuple[float, float | None],
    pair: tuple[torch.Tensor, torch.Tensor],
) -> Issue:
    floor, theirs = context
    mine, exact = pair
    times = found.error / floor if floor else float("inf")
    against = f"{times:.3g} times the rounding floor"
    if theirs:
        against = f"{found.error / theirs:.3g} times the reference's error, " + against
    cause = "rounding"
    if found.error > 1e-2 * found.scale:
        cause = classify(mine.to(exact.dtype), exact).text
    operand = name.removeprefix("gradient of ")
    place = at_index(name, found.index)
    got, expected = apart(found.got, found.expected)
    return exam.verdict(
        PRECISION,
        f"In {dtype_name(dtype)} the {place} is {got}, in float64 {expected}: "
        f"error {found.error:.2g}, {against} (limit {found.limit:.2g}).",
        operand=operand,
        error=Quantity(value=found.error, limit=found.limit),
        times_floor=times,
        dtype=dtype_name(dtype),
        setting=dtype_name(dtype),
        cause=cause,
    )

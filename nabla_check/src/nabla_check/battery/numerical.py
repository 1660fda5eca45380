"""The gradient against the numerical derivative: right, wrong, on a kink, or not decidable."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from nabla_core.issue import Issue, Location

from ..examination import Baseline, Examination
from ..inputs.operands import is_differentiable
from ..rules import BACKWARD_MISMATCH, KINK, MISSING_GRADIENT
from ..truth.hidden_state import reads_updated_state
from ..truth.numerical import (
    NumericElements,
    elements_of,
    halves,
    has_slopes_at,
    is_smooth_at,
    judge_operand,
    judge_point,
    nearby,
    point_at,
)
from ..truth.oracle import Verdict
from ..truth.products import steps_for
from ..wording.accuse import Basis, mismatch, missing_gradient, wrong_gradient
from ..wording.classify import Cause, classify
from ..wording.compare import deviation, is_finite, largest
from ..wording.describe import at_index, number
from .excluded_ties import is_tie_with_excluded, tie_note
from .repetition import repeat_forward

__all__ = ["compare_with_numbers", "unused_outputs"]

TRUTH = "numerical derivative"
_FEW = 64
_WINDOW = 8
_ELEMENT_TOLERANCE = 1e-8
_DIRECTION = "along a random direction"
_WHOLE = ("factor", "sign", "missing", "non-finite", "offset", "rounding")


def compare_with_numbers(exam: Examination) -> Iterator[Issue]:
    """Judge the baseline without a reference (CHK201, CHK202, CHK901, CHK902)."""
    limit = exam.options.max_finite_difference_elements
    count = sum(x.numel() for x in exam.baseline.values)
    reason = ""
    if not count:
        reason = "the given tensors hold no element; only other sizes were tried"
    elif exam.resolution is None:
        reason = "this dtype has no room for a numerical derivative; give float64 or a reference"
    elif limit is not None and count > limit:
        reason = f"{count} elements, more than max_finite_difference_elements={limit}"
    if reason:
        exam.skip(BACKWARD_MISMATCH, reason)
        yield exam.note("gradient", reason)
        return
    yield from judge_and_report(exam, exam.baseline)


def _not_finite_around(point: Baseline) -> str:
    leaves = [x for x in point.operands.tree.leaves if is_differentiable(x)]
    if not all(is_finite(x) for x in leaves if isinstance(x, torch.Tensor)):
        return "an input holds NaN or infinity"
    if not all(is_finite(x) for x in point.output_copies):
        return "the output holds NaN or infinity for finite inputs"
    return ""


def judge_and_report(
    exam: Examination, point: Baseline, *, setting: str = "", quiet: bool = False
) -> Iterator[Issue]:
    """Judge one point; ``quiet`` leaves out the notes on kinks and undecided directions."""
    verdict = judge_point(exam, point, brief=quiet)
    if verdict is not None and verdict.state == "agrees" and not verdict.by_noise:
        return
    remembered = _remembered(exam) if point is exam.baseline else []
    yield from remembered
    if remembered or (verdict is not None and verdict.state == "agrees"):
        return
    reason = _not_finite_around(point)
    if reason:
        if not quiet:
            exam.skip(BACKWARD_MISMATCH, reason)
            yield exam.note("gradient", reason)
        return
    if verdict is None:
        yield from _not_finite(exam, point, setting)
    elif exam.is_negligible(point.gradients, point) and verdict.numeric == 0.0:
        return  # saturated: the outputs are constant to the last digit
    elif verdict.state == "differs" and not reads_updated_state(exam, point.operands):
        yield from _accuse(exam, point, verdict, setting)
    elif not quiet:
        yield from _undecided(exam, point, verdict)


def _remembered(exam: Examination) -> list[Issue]:
    """Look whether calls leave something behind (CHK221): then their differences mean nothing."""
    found = list(repeat_forward(exam)) if exam.options.wants("determinism") else []
    if found:
        exam.skip(BACKWARD_MISMATCH, "the forward depends on earlier calls")
    return found


def _undecided(exam: Examination, point: Baseline, verdict: Verdict) -> Iterator[Issue]:
    if verdict.state == "kink":
        yield from _beside_the_kink(exam, point)
        return
    if verdict.state == "differs":
        reason = (
            "the output depends on buffers that the call updates; give a reference or use eval()"
        )
        exam.skip(BACKWARD_MISMATCH, reason)
        yield exam.note("gradient", reason)
        return
    exam.skip(BACKWARD_MISMATCH, "no step size gave a sharp numerical derivative")
    yield exam.note(
        "gradient",
        f"no step size gave a sharp numerical derivative (best error bar {verdict.bar:.2g}, "
        f"derivative {number(verdict.analytic)})",
    )


def _beside_the_kink(exam: Examination, point: Baseline) -> Iterator[Issue]:
    place = Location(op=exam.candidate.callee.name)
    yield KINK.issue(
        "One-sided slopes differ at the given input, limit 0.4 of their gap per quarter step; "
        "the gradient was judged at a nearby point.",
        where=place,
        phase="backward",
    )
    moved = point.operands.with_values(nearby(exam, point.values))
    beside = point_at(exam, moved, stage="at a nearby point")
    yield from judge_and_report(exam, beside, setting="at a point near the given input", quiet=True)


def _accuse(exam: Examination, point: Baseline, verdict: Verdict, setting: str) -> Iterator[Issue]:
    if is_tie_with_excluded(exam, point):
        if not setting:
            yield tie_note(exam)
        return
    found = [
        issue
        for which in range(len(point.values))
        for issue in _accuse_operand(exam, point, which, setting)
    ]
    if found:
        yield from found
        return
    names = ", ".join(point.operands.live_names)
    yield exam.verdict(
        BACKWARD_MISMATCH,
        f"Gradient of {names} along a random direction is {number(verdict.analytic)}, by the "
        f"{TRUTH} {number(verdict.numeric)} (error bar {verdict.bar:.2g}).",
        operand=names,
        got=verdict.analytic,
        expected=verdict.numeric,
        error_bar=verdict.bar,
    )


def _accuse_operand(
    exam: Examination, point: Baseline, which: int, setting: str
) -> Iterator[Issue]:
    value = point.values[which]
    direction = steps_for([value], exam.generator)[0]
    verdict = judge_operand(exam, point, which, direction)
    if verdict.state != "differs":
        return
    gradient = point.gradients[which]
    if gradient is None or not bool(gradient.any()):
        size = abs(verdict.numeric) / max(float(direction.abs().square().sum().sqrt()), 1e-300)
        name = point.operands.live_names[which]
        got = "None" if gradient is None else "zeros"
        basis = Basis(truth=TRUTH, setting=setting, where=_DIRECTION)
        yield missing_gradient(exam, name, size, basis, got=got)
        return
    start, stop = 0, value.numel()
    if value.numel() > _FEW:
        *_, (start, stop) = halves(exam, point, which, _WINDOW)
    yield from _accuse_elements(exam, point, which, (start, stop), setting)


def _accuse_elements(
    exam: Examination, point: Baseline, which: int, window: tuple[int, int], setting: str
) -> Iterator[Issue]:
    value = point.values[which]
    whole = window == (0, value.numel())
    measured = elements_of(exam, point, which, _indices(exam, value.numel(), window))
    if not len(measured.flat):
        return
    limit = max(_ELEMENT_TOLERANCE, exam.tolerance) * largest(measured.expected)
    if len(measured.flat) == value.numel() and whole:
        shape = value.shape
        pair = (measured.got.reshape(shape), measured.expected.reshape(shape))
        basis = Basis(truth=TRUTH, limit=limit, setting=setting)
        issue = wrong_gradient(exam, point, which, pair, basis)
        if issue is not None:
            yield issue
        return
    yield from _accuse_sample(exam, point, which, measured, setting)


def _indices(exam: Examination, count: int, window: tuple[int, int]) -> list[int]:
    inside = list(range(*window))
    if window == (0, count):
        return inside
    others = torch.randint(0, count, (_WINDOW,), generator=exam.generator).tolist()
    return sorted({*inside, *others})


def _accuse_sample(
    exam: Examination, point: Baseline, which: int, measured: NumericElements, setting: str
) -> Iterator[Issue]:
    """Report from some elements of a large operand; only whole-tensor patterns can be named."""
    limit = max(_ELEMENT_TOLERANCE, exam.tolerance) * largest(measured.expected)
    found = deviation(measured.got, measured.expected, relative=0.0, absolute=limit)
    if found is None:
        return
    flat = int(measured.flat[found.index[0]])
    cause = classify(measured.got, measured.expected, exam.noise)
    if cause.pattern not in _WHOLE:
        wrong = int(((measured.got - measured.expected).abs() > limit).sum())
        text = f"{wrong} of {len(measured.flat)} probed elements are wrong"
        cause = Cause(pattern="elements", text=text)
    yield mismatch(
        exam,
        point.operands.live_names[which],
        replace(found, index=_unravel(flat, point.values[which])),
        cause,
        Basis(truth=TRUTH, limit=limit, setting=setting),
    )


def _not_finite(exam: Examination, point: Baseline, setting: str) -> Iterator[Issue]:
    """Accuse a NaN or infinity where the numerical derivative is an ordinary number."""
    undecided = 0
    for which, gradient in enumerate(point.gradients):
        if gradient is None:
            continue
        bad = (~torch.isfinite(gradient.reshape(-1))).nonzero().flatten().tolist()
        if setting and len(bad) > max(1, gradient.numel() // 4):
            return  # the operator's domain has been left
        bad = bad[:1] if setting else bad[:4]
        if setting and bad and not is_smooth_at(exam, point, which, bad[0]):
            if exam.own_derivatives and has_slopes_at(exam, point, which, bad[0]):
                yield _not_finite_on_kink(exam, point, which, bad[0], setting)
            return  # a singular point that was only tried by the way
        measured = elements_of(exam, point, which, bad, only_decided=True)
        undecided += len(bad) - len(measured.flat)
        if not len(measured.flat):
            continue
        name = point.operands.live_names[which]
        place = at_index(name, _unravel(int(measured.flat[0]), point.values[which]))
        value = float(measured.got[0].real)
        expected = float(measured.expected[0].real)
        yield exam.verdict(
            BACKWARD_MISMATCH,
            f"Gradient of {place} is {number(value)}, by the {TRUTH} {number(expected)}"
            f"{f' ({setting})' if setting else ''}.",
            operand=name,
            got=value,
            expected=expected,
            pattern="non-finite",
            cause="the backward makes a NaN or infinity at a regular point",
        )
    if undecided and not setting:
        exam.skip(BACKWARD_MISMATCH, "the gradient is not finite at a singular point")
        yield exam.note("gradient", "it is not finite and neither is the numerical derivative")


def _not_finite_on_kink(
    exam: Examination, point: Baseline, which: int, flat: int, setting: str
) -> Issue:
    name = point.operands.live_names[which]
    gradient = point.gradients[which]
    value = math.nan if gradient is None else float(gradient.reshape(-1)[flat].real)
    place = at_index(name, _unravel(flat, point.values[which]))
    return KINK.issue(
        f"Gradient of {place} is {number(value)}, and the one-sided slopes there are finite "
        f"({setting}): a NaN is no choice between them, but torch makes some too.",
        where=Location(op=exam.candidate.callee.name, parameter=name),
        phase="backward",
    )


def unused_outputs(exam: Examination) -> Iterator[Issue]:
    """Judge an operator of which no output carries a gradient (CHK202)."""
    base = exam.baseline
    floating = [i for i, leaf in enumerate(base.outputs.tree.leaves) if is_differentiable(leaf)]
    marked = [i for i in exam.operands.live if i not in exam.operands.assumed]
    if not floating or not marked:
        reason = "no output carries a gradient" if floating else "no output is floating or complex"
        exam.skip(BACKWARD_MISMATCH, reason)
        yield exam.note("gradient", reason)
        return
    outputs = replace(base.outputs, live=tuple(floating))
    copies = tuple(x.detach().clone() for x in outputs.differentiable)
    point = replace(base, outputs=outputs, output_copies=copies, cotangents=exam.draw(copies))
    if exam.resolution is None or _not_finite_around(point):
        exam.skip(MISSING_GRADIENT, "no numerical derivative here")
        return
    verdict = judge_point(exam, point)
    if verdict is not None and verdict.state == "differs":
        names = ", ".join(exam.operands.live_names)
        size = abs(verdict.numeric)
        yield missing_gradient(exam, names, size, Basis(truth=TRUTH, where=_DIRECTION))


def _unravel(flat: int, value: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), value.shape))

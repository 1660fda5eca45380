"""Second derivatives: right, silently missing, or refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from nabla_core.issue import Issue, Quantity

from ..examination import Examination
from ..inputs.evaluation import Evaluator, Gradients, OperatorRaised
from ..inputs.operands import Values
from ..rules import DOUBLE_BACKWARD_MISMATCH
from ..truth.authorship import nodes_of
from ..truth.conditioning import disturbed, gradient_floors
from ..truth.hidden_state import reads_updated_state
from ..truth.numerical import is_smooth_along
from ..truth.oracle import Curve, State, glance, judge
from ..truth.products import inner, norm_of_products, normals_like, projection, steps_for
from ..wording.compare import Deviation, deviation, is_finite, largest
from ..wording.describe import describe, number

__all__ = ["second_derivatives"]

_DISTURBANCE = 2.0**-30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Second:
    """Derivatives of ``S = <w, J'u>``.

    Attributes:
        projection: value of S.
        size: root of the summed squares of its terms.
        gradients: the first gradients J'u.
        by_operand: dS/dx.
        by_cotangent: dS/du.
        refused: why autograd gives no second derivative, ``""`` when it does.
    """

    projection: float
    size: float
    gradients: Gradients
    by_operand: Gradients
    by_cotangent: Gradients
    refused: str = ""


def second_derivatives(exam: Examination) -> Iterator[Issue]:
    """Judge the double backward (CHK204)."""
    if exam.candidate.accumulates:
        exam.skip(DOUBLE_BACKWARD_MISMATCH, "a reentrant checkpoint has no second derivative")
        return
    weights = normals_like(exam.baseline.values, exam.generator)
    values = exam.operands.values()
    found = _differentiate(exam.candidate, values, exam.baseline.cotangents, weights)
    if found.refused:
        exam.skip(DOUBLE_BACKWARD_MISMATCH, found.refused)
        yield exam.note("double backward", found.refused)
        return
    second = (*found.by_operand, *found.by_cotangent)
    if not all(h is None or is_finite(h) for h in second) and _is_singular(exam):
        reason = "it is not finite, at inputs without a first derivative"
        exam.skip(DOUBLE_BACKWARD_MISMATCH, reason)
        yield exam.note("double backward", reason)
        return
    if exam.is_negligible(found.gradients):
        exam.skip(DOUBLE_BACKWARD_MISMATCH, "the first gradient is zero")
        return
    wrong = _by_cotangent(exam, weights, found)
    if wrong is not None:
        yield wrong
        return
    if exam.reference is not None:
        verdicts = _against_reference(exam, exam.reference, values, weights, found)
        if verdicts is not None:
            yield from verdicts
            return
    yield from _against_numbers(exam, weights, found)


def _differentiate(
    evaluator: Evaluator, values: Values, cotangents: Sequence[torch.Tensor], weights: Values
) -> _Second:
    handed = tuple(u.detach().clone().requires_grad_() for u in cotangents)
    try:
        outputs = evaluator.forward(values, stage="forward for a second derivative")
        gradients = evaluator.vjp(
            outputs, values, handed, create_graph=True, stage="differentiable backward"
        )
    except OperatorRaised as raised:
        return _nothing(f"refused by {raised.summary}", values)
    connected = [
        (g, weight)
        for g, weight in zip(gradients, weights, strict=True)
        if g is not None and g.requires_grad
    ]
    detached = tuple(None if g is None else g.detach() for g in gradients)
    second: Gradients = tuple(None for _ in (*values, *handed))
    if _refuses([g for g in gradients if g is not None]):
        return _nothing("marked once_differentiable", values)
    if connected:
        try:
            second = evaluator.pull(
                [g for g, _ in connected],
                (*values, *handed),
                [weight for _, weight in connected],
                stage="double backward",
            )
        except OperatorRaised as raised:
            return _nothing(f"refused by {raised.summary}", values)
    value, size = projection(detached, weights)
    return _Second(
        projection=value,
        size=size,
        gradients=detached,
        by_operand=second[: len(values)],
        by_cotangent=second[len(values) :],
    )


def _nothing(reason: str, values: Values) -> _Second:
    none = tuple(None for _ in values)
    return _Second(
        projection=0.0, size=0.0, gradients=none, by_operand=none, by_cotangent=(), refused=reason
    )


def _refuses(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether a node of ``once_differentiable`` guards a gradient.

    That node lies on no path to the inputs, so that autograd skips it silently and returns a wrong
    second derivative instead of the error.
    """
    return any(node.name().split("::")[-1] == "Error" for node in nodes_of(gradients))


def _is_singular(exam: Examination) -> bool:
    """Whether the function itself is not smooth at the given inputs, as a norm at zero."""
    directions = steps_for(exam.baseline.values, exam.generator)
    return not is_smooth_along(exam, exam.baseline, directions)


def _by_cotangent(exam: Examination, weights: Values, found: _Second) -> Issue | None:
    """S is linear in u, so that <dS/du, u> must return S itself."""
    if not math.isfinite(found.projection):
        return None  # overflow: nothing to compare with
    got = inner(found.by_cotangent, exam.baseline.cotangents)
    limit = max(1e-9, exam.tolerance) * (abs(found.projection) + found.size) + 1e-300
    if abs(got - found.projection) <= limit:
        return None
    floors = gradient_floors(
        exam.candidate, exam.operands, exam.baseline.cotangents, exam.generator, exam.unit
    )
    limit += sum(
        floor * float(torch.linalg.vector_norm(w)) for floor, w in zip(floors, weights, strict=True)
    )
    if abs(got - found.projection) <= limit:
        return None
    return exam.verdict(
        DOUBLE_BACKWARD_MISMATCH,
        "The second derivative loses the incoming gradient: by linearity its projection is "
        f"{number(found.projection)}, got {number(got)} (limit {limit:.2g}).",
        error=Quantity(value=abs(got - found.projection), limit=limit),
        cause="the backward's dependence on grad_output is detached or wrong",
    )


def _against_reference(
    exam: Examination,
    reference: Evaluator,
    values: Values,
    weights: Values,
    found: _Second,
) -> list[Issue] | None:
    copies = tuple(x.detach().clone().requires_grad_() for x in values)
    truth = _differentiate(reference, copies, exam.baseline.cotangents, weights)
    if truth.refused:
        return None
    top = max((largest(g) for g in truth.gradients), default=0.0)
    for which, (got, want) in enumerate(zip(found.by_operand, truth.by_operand, strict=True)):
        zeros = torch.zeros_like(values[which])
        a, b = (zeros if x is None else x for x in (got, want))
        tolerance = max(1e-8, exam.tolerance)
        if deviation(a, b, relative=tolerance, absolute=1e-4 * tolerance * top) is None:
            continue
        floor = _floor(exam, reference, weights, truth, which)
        wrong = deviation(a, b, relative=tolerance, absolute=floor)
        if wrong is not None:
            return [_mismatch(exam, which, wrong, lost=not bool(a.any()))]
    return []


def _floor(
    exam: Examination, reference: Evaluator, weights: Values, truth: _Second, which: int
) -> float:
    moved = tuple(
        x.requires_grad_()
        for x in disturbed(exam.operands.originals(), _DISTURBANCE, exam.generator)
    )
    shifted = disturbed(exam.baseline.cotangents, _DISTURBANCE, exam.generator)
    other = _differentiate(reference, moved, shifted, weights).by_operand[which]
    mine = truth.by_operand[which]
    change = 0.0 if other is None or mine is None else largest(other - mine)
    return 64 * exam.unit / _DISTURBANCE * change


def _mismatch(exam: Examination, which: int, wrong: Deviation, *, lost: bool) -> Issue:
    name = exam.operands.live_names[which]
    return exam.verdict(
        DOUBLE_BACKWARD_MISMATCH,
        f"Second derivative for {describe(name, wrong)} by the reference.",
        operand=name,
        error=Quantity(value=wrong.error, limit=wrong.limit),
        got=wrong.got,
        expected=wrong.expected,
        cause=_cause(lost),
    )


def _cause(lost: bool) -> str:
    if lost:
        return "the backward is silently detached: it treats what it kept as a constant"
    return "the derivative of the backward is wrong or partly detached"


def _against_numbers(exam: Examination, weights: Values, found: _Second) -> Iterator[Issue]:
    base = exam.baseline
    if exam.resolution is None:
        exam.skip(DOUBLE_BACKWARD_MISMATCH, "no numerical derivative in this dtype")
        return
    connected = any(h is not None for h in found.by_operand)
    if connected and not exam.own_derivatives and not exam.options.demands("double_backward"):
        return  # every formula is torch's own; only a lost connection is worth four more calls
    directions = steps_for(base.values, exam.generator)
    curve = _gradient_curve(exam, weights, directions, found)
    analytic = inner(found.by_operand, directions)
    scale = norm_of_products(found.by_operand, directions) + 1e-6 * found.size
    if glance(curve, analytic, scale, exam.resolution):
        return
    verdict = judge(curve, analytic, scale, exam.resolution)
    if verdict.state == "differs" and not reads_updated_state(exam, exam.operands):
        names = ", ".join(exam.operands.live_names)
        yield exam.verdict(
            DOUBLE_BACKWARD_MISMATCH,
            f"Second derivative for {names} along a random direction is {number(analytic)}, by "
            f"differences of the first gradient {number(verdict.numeric)} "
            f"(error bar {verdict.bar:.2g}).",
            operand=names,
            got=analytic,
            expected=verdict.numeric,
            error_bar=verdict.bar,
            cause=_cause(analytic == 0.0),
        )
    elif verdict.state != "agrees":
        exam.skip(
            DOUBLE_BACKWARD_MISMATCH, f"the numerical second derivative is {_why(verdict.state)}"
        )


def _why(state: State) -> str:
    return "led astray by buffers that the call updates" if state == "differs" else state


def _gradient_curve(
    exam: Examination, weights: Values, directions: Values, found: _Second
) -> Curve:
    """Return the first gradient, seen through ``weights``, as a function along ``directions``."""
    base = exam.baseline
    origins = base.operands.originals()
    centre = [
        torch.zeros_like(x) if g is None else g
        for g, x in zip(found.gradients, origins, strict=True)
    ]

    def first_gradients(t: float) -> Sequence[torch.Tensor]:
        points = tuple(
            (x + t * v).requires_grad_() for x, v in zip(origins, directions, strict=True)
        )
        outputs = exam.candidate.forward(points, stage="forward nearby")
        pulled = exam.candidate.vjp(outputs, points, tuple(u.clone() for u in base.cotangents))
        return [
            torch.zeros_like(x) if g is None else g.detach()
            for g, x in zip(pulled, points, strict=True)
        ]

    return Curve(first_gradients, weights, centre, sum(v.numel() for v in directions))

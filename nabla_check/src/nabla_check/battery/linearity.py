"""The backward must be linear in the cotangent: scaled, summed, partial, in any memory layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from nabla_core.issue import Issue

from ..examination import Baseline, Examination
from ..inputs.evaluation import Gradients, OperatorRaised
from ..inputs.layout_names import Layout
from ..inputs.layouts import changes_memory, relayout
from ..rules import COTANGENT_LAYOUT, COTANGENT_NONLINEAR, OPERATOR_EXCEPTION
from ..truth.conditioning import gradient_floors
from ..wording.classify import classify
from ..wording.compare import Deviation, deviation, largest
from ..wording.describe import describe

__all__ = [
    "is_refusal",
    "nonlinear",
    "partial_cotangents",
    "refuses_layout",
    "unusual_cotangents",
    "worst",
    "wrong_layout",
]

_TOLERANCE = 1e-9
_SMALL = 2.0**-20
_EQUAL = -0.625
"""Value of an expanded cotangent: not 1, which a shortcut for ``sum().backward()`` would take."""
_REFUSAL = re.compile(r"contiguous|stride|layout|memory format|overlap|not compatible")
_CRASH = re.compile(r"out of bounds|internal assert|setstorage")
_BAD_VIEW = "view size is not compatible"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """Cotangents in an unusual form, and the gradient that they must give.

    Attributes:
        layout: of the cotangents.
        words: how messages call the change of values, ``""`` for none.
        cotangents: dense values.
        expected: the gradient by linearity.
    """

    layout: Layout
    words: str
    cotangents: tuple[torch.Tensor, ...]
    expected: Gradients


def nonlinear(
    exam: Examination, got: Gradients, expected: Gradients, words: str
) -> Iterator[Issue]:
    """Yield a verdict when ``got`` is not what linearity demands."""
    found = worst(exam, got, expected)
    if found is None:
        return
    which, where = found
    name = exam.operands.live_names[which]
    issue = exam.verdict(
        COTANGENT_NONLINEAR,
        f"With the incoming gradient {words}, the gradient of {describe(name, where)} by "
        "linearity.",
        operand=name,
        setting=f"incoming gradient {words}",
        got=where.got,
        expected=where.expected,
    )
    yield _unless_rounding(issue, got[which], expected[which])


def _unless_rounding(
    issue: Issue, got: torch.Tensor | None, expected: torch.Tensor | None
) -> Issue:
    """Return ``issue``, with another cause where a narrow dtype is all that breaks linearity."""
    if got is None or expected is None:
        return issue
    cause = classify(got.detach().to(expected.dtype), expected.detach())
    if cause.pattern != "rounding":
        return issue
    return replace(issue, evidence={**issue.evidence, "cause": cause.text}, suggestion=cause.hint)


def worst(
    exam: Examination, got: Gradients, expected: Gradients, point: Baseline | None = None
) -> tuple[int, Deviation] | None:
    """Return the first operand whose gradient differs beyond its own conditioning.

    Args:
        exam: the examination.
        got: gradients under test.
        expected: what they must be.
        point: where both were taken; the baseline by default.
    """
    point = point or exam.baseline
    top = max((largest(g) for g in expected), default=0.0)
    tolerance = max(_TOLERANCE, exam.tolerance)
    floors: list[float] | None = None
    for which, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a is None and b is None:
            continue
        left = torch.zeros_like(point.values[which]) if a is None else a
        right = torch.zeros_like(point.values[which]) if b is None else b
        if deviation(left, right, relative=tolerance, absolute=1e-4 * tolerance * top) is None:
            continue
        if floors is None:
            floors = gradient_floors(
                exam.candidate, point.operands, point.cotangents, exam.generator, exam.unit
            )
        found = deviation(left, right, relative=tolerance, absolute=floors[which])
        if found is not None:
            return which, found
    return None


def unusual_cotangents(exam: Examination) -> Iterator[Issue]:
    """Try layouts and linear combinations at once (CHK211, CHK212).

    Torch's own formulas have been scaled and strided once before; that is enough for them.
    """
    if not exam.own_derivatives:
        return
    ones = tuple(torch.ones_like(u) for u in exam.baseline.cotangents)
    for_ones = _pull(exam, ones, "backward of ones")
    for trial in _trials(exam, ones, for_ones):
        handed = tuple(relayout(u, trial.layout) for u in trial.cotangents)
        stage = f"backward with a {trial.layout} incoming gradient"
        try:
            got = _pull(exam, handed, stage)
        except OperatorRaised as raised:
            yield from _refused(exam, raised, trial)
            continue
        if worst(exam, got, trial.expected) is not None:
            yield from _explain(exam, trial)


def _trials(
    exam: Examination, ones: tuple[torch.Tensor, ...], for_ones: Gradients
) -> Iterator[_Trial]:
    base = exam.baseline
    cotangents, gradients = base.cotangents, base.gradient_copies
    yield _Trial(
        layout="strided",
        words=f"scaled by {_SMALL:.2g}",
        cotangents=tuple(_SMALL * u for u in cotangents),
        expected=_map(gradients, lambda g: _SMALL * g),
    )
    yield _Trial(
        layout="transposed",
        words="with 1 added",
        cotangents=tuple(u + one for u, one in zip(cotangents, ones, strict=True)),
        expected=_sum(gradients, for_ones),
    )
    same_values: tuple[Layout, ...] = ("sliced", "channels_last")
    for layout in same_values:
        if any(changes_memory(u, layout) for u in cotangents):
            yield _Trial(layout=layout, words="", cotangents=cotangents, expected=gradients)
    if any(changes_memory(u, "expanded") for u in cotangents):
        yield _Trial(
            layout="expanded",
            words="of equal numbers",
            cotangents=tuple(_EQUAL * one for one in ones),
            expected=_map(for_ones, lambda g: _EQUAL * g),
        )
    if any(changes_memory(u, "rows") for u in cotangents):
        dense = tuple(relayout(u, "rows").contiguous() for u in cotangents)
        expected = _pull(exam, dense, "backward of equal rows")
        yield _Trial(layout="rows", words="", cotangents=dense, expected=expected)


def _explain(exam: Examination, trial: _Trial) -> Iterator[Issue]:
    """Tell a layout fault from a nonlinearity: try the same values in contiguous memory."""
    dense = tuple(u.detach().clone() for u in trial.cotangents)
    plain = _pull(exam, dense, "backward")
    if worst(exam, plain, trial.expected) is not None:
        yield from nonlinear(exam, plain, trial.expected, trial.words or "repeated")
        return
    handed = tuple(relayout(u, trial.layout) for u in trial.cotangents)
    got = _pull(exam, handed, f"backward with a {trial.layout} incoming gradient")
    yield from wrong_layout(exam, got, plain, trial.layout)


def wrong_layout(
    exam: Examination, got: Gradients, expected: Gradients, layout: Layout
) -> Iterator[Issue]:
    """Yield a verdict when the gradient changes with the layout of the cotangents."""
    found = worst(exam, got, expected)
    if found is None or exam.failed(COTANGENT_LAYOUT):
        return
    which, where = found
    name = exam.operands.live_names[which]
    shown = [relayout(u, layout).stride() for u in exam.baseline.cotangents]
    strides = ", ".join(str(list(stride)) for stride in shown)
    yield exam.verdict(
        COTANGENT_LAYOUT,
        f"With a {layout} incoming gradient (strides {strides}) the gradient of "
        f"{describe(name, where)} as with a contiguous one.",
        operand=name,
        setting=f"{layout} incoming gradient, strides {strides}",
        layout=layout,
        got=where.got,
        expected=where.expected,
    )


def _refused(exam: Examination, raised: OperatorRaised, trial: _Trial) -> Iterator[Issue]:
    if refuses_layout(raised):
        yield exam.note(f"{trial.layout} incoming gradient", f"refused by {raised.summary}")
        return
    yield exam.verdict(
        COTANGENT_LAYOUT if trial.layout != "contiguous" else OPERATOR_EXCEPTION,
        f"The {raised.stage} raised {raised.summary}.",
        setting=raised.stage,
        stage=raised.stage,
    )


def refuses_layout(raised: OperatorRaised) -> bool:
    """Whether a backward refuses a layout on purpose.

    Nobody chooses the layout of an incoming gradient, so a failing ``view`` is a fault here.
    """
    return is_refusal(raised) and _BAD_VIEW not in str(raised.error)


def is_refusal(raised: OperatorRaised) -> bool:
    """Whether an exception says clearly that this memory layout is not supported."""
    text = str(raised.error).lower()
    return _REFUSAL.search(text) is not None and _CRASH.search(text) is None


def partial_cotangents(exam: Examination) -> Iterator[Issue]:
    """Use only some outputs: the gradients must add up, and the backward must bear it (CHK211)."""
    base = exam.baseline
    count = len(base.cotangents)
    if not count >= 2:
        return
    chosen = range(count) if count <= 3 else (0, count - 1)
    total: list[torch.Tensor | None] = [None] * len(base.values)
    groups: list[tuple[int, ...]] = [(index,) for index in chosen]
    if count > 3:
        groups.append(tuple(range(1, count - 1)))
    for group in groups:
        values, outputs = exam.graph()
        names = ", ".join(outputs.live_names[index] for index in group)
        stage = f"backward with only {names} used"
        try:
            part = exam.candidate.pull(
                [outputs.differentiable[index] for index in group],
                values,
                [base.cotangents[index].clone() for index in group],
                stage=stage,
            )
        except OperatorRaised as raised:
            yield exam.verdict(
                OPERATOR_EXCEPTION, f"The {stage} raised {raised.summary}.", setting=stage
            )
            return
        total = list(_sum(tuple(total), part))
    yield from nonlinear(exam, tuple(total), base.gradient_copies, "given to one output at a time")


def _pull(exam: Examination, cotangents: Sequence[torch.Tensor], stage: str) -> Gradients:
    values, outputs = exam.graph()
    return exam.candidate.vjp(outputs, values, cotangents, stage=stage)


def _map(gradients: Gradients, change: Callable[[torch.Tensor], torch.Tensor]) -> Gradients:
    return tuple(None if g is None else change(g) for g in gradients)


def _sum(left: Gradients, right: Gradients) -> Gradients:
    return tuple(
        b if a is None else a if b is None else a + b for a, b in zip(left, right, strict=True)
    )

"""When a gradient may differ from the reference's: on kinks and singular points."""

from __future__ import annotations

import torch

from ..examination import Baseline, Examination
from ..inputs.evaluation import Gradients
from ..inputs.operands import Values
from ..truth.numerical import has_slopes_at, is_smooth_along, is_smooth_at
from ..truth.products import size_of
from ..wording.compare import largest

__all__ = ["is_excused"]

_MOST_ELEMENTS = 8


def is_excused(
    exam: Examination, point: Baseline, which: int, got: Gradients, expected: Gradients
) -> bool:
    """Whether operand ``which`` differs only where the function has no single derivative.

    At a tie or a zero every subgradient is right, but NaN is none. So a difference counts only
    where the function is smooth, or smooth along the difference itself: two gradients that both
    are subgradients differ along a kink. Where the reference is not finite it says nothing. Only
    for points that the check has chosen: at the given inputs the reference defines the truth.
    """
    if exam.resolution is None:
        return False
    values = point.operands.originals()
    gaps = tuple(_gap(a, b, x) for a, b, x in zip(got, expected, values, strict=True))
    sizes = gaps[which].abs().reshape(-1).nan_to_num(nan=torch.inf, posinf=torch.inf)
    order = sizes.argsort(descending=True)[:_MOST_ELEMENTS].tolist()
    worst = sizes[order[0]]
    truth = expected[which]
    for flat in order:
        if truth is not None and not bool(torch.isfinite(truth.reshape(-1)[flat])):
            continue
        if bool(sizes[flat] < 1e-3 * worst):
            break
        lost = not bool(torch.isfinite(sizes[flat]))
        if (has_slopes_at if lost else is_smooth_at)(exam, point, which, flat):
            return False
    return not (
        bool(torch.isfinite(worst)) and is_smooth_along(exam, point, _directions(gaps, values))
    )


def _gap(got: torch.Tensor | None, expected: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Return ``got - expected``; what is missing counts as zeros."""
    left, right = (torch.zeros_like(x) if g is None else g.detach() for g in (got, expected))
    return left - right


def _directions(gaps: Values, values: Values) -> Values:
    """Return the gaps, without what is not finite, as one step of about the operands' size."""
    finite = [gap.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for gap in gaps]
    top = max(largest(gap) for gap in finite)
    factor = min(size_of(x) for x in values) / top if top else 0.0
    return tuple(gap * factor for gap in finite)

"""Does a fault set in at once as values grow, or by and by, where a solver stops converging?"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..examination import Baseline, Examination
from ..inputs.evaluation import OperatorRaised
from ..inputs.operands import Operands
from ..truth.numerical import curve_along, point_at
from ..truth.products import projection, steps_for

__all__ = ["Growth", "sets_in_gradually"]

Growth = Callable[[float], Operands]
"""Operands at a share of the growth: 0 for the size of the given values, 1 for the tried ones."""

_HALVINGS = 7
_STEP = 2.0**-20
_RIGHT, _WRONG = 1e-6, 1e-3
"""Relative errors of a directional derivative that is right, and that is plainly wrong."""


def sets_in_gradually(exam: Examination, growth: Growth) -> bool:
    """Look for a size at which the gradient is a little wrong, between right and plainly wrong.

    A wrong formula or mask is wrong by a whole element from some value on. What an iteration leaves
    undone grows from the last digit on.
    """
    right, wrong = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (right + wrong) / 2
        try:
            point = point_at(exam, growth(middle), stage="at values between")
        except OperatorRaised:
            return True  # the operator's domain lies between, and not all of it is known
        error = _error(exam, point)
        if _RIGHT < error < _WRONG:
            return True
        right, wrong = (middle, wrong) if error <= _RIGHT else (right, middle)
    return False


def _error(exam: Examination, point: Baseline) -> float:
    directions = steps_for(point.values, exam.generator)
    analytic, scale = projection(point.gradients, directions)
    numeric = curve_along(exam, point, directions).central(_STEP)
    error = abs(analytic - numeric) / (scale + abs(numeric) + 1e-300)
    return error if math.isfinite(error) else math.inf

"""Whether a point that only the check has chosen lies where the operator is meant to work."""

from __future__ import annotations

from ..examination import Baseline, Examination
from ..inputs.operands import is_differentiable
from ..wording.compare import is_finite, largest

__all__ = ["has_ordinary_gradients", "in_domain"]

_EXPLODED = 1e6
"""Outputs that grow by more than this come from outside the operator's domain."""
_STEEP = 30.0
"""Gradients that grow by more than this come from beside a singular point."""


def in_domain(exam: Examination, point: Baseline) -> bool:
    """Whether the outputs at ``point`` carry gradients, are finite and of an ordinary size."""
    if not point.outputs.live or any(not is_finite(x) for x in point.output_copies):
        return False
    before, after = _error_codes(exam.baseline), _error_codes(point)
    if any(fine and not still for fine, still in zip(before, after, strict=False)):
        return False
    return _size(point) <= _EXPLODED * (_size(exam.baseline) + 1)


def has_ordinary_gradients(exam: Examination, point: Baseline) -> bool:
    """Whether the gradients at ``point`` are finite and about as large as those of the baseline."""
    gradients = [g for g in point.gradients if g is not None]
    top = max((largest(g) for g in exam.baseline.gradient_copies), default=0.0)
    return all(is_finite(g) and largest(g) <= _STEEP * top for g in gradients)


def _error_codes(point: Baseline) -> list[bool]:
    """Whether each integer output is zero everywhere, as an error code is where all went well."""
    integers = [x for x in point.outputs.tensors if not is_differentiable(x)]
    return [not bool(x.any()) for x in integers]


def _size(point: Baseline) -> float:
    return max((largest(x) for x in point.output_copies), default=0.0)

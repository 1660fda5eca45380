"""``nabla.sanitize``: look at tensors once, without hooks and without a loop."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nabla_core.errors import UsageError
from nabla_core.issue import Issue
from nabla_core.report import NotEvaluated
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .loop.exact import tensors_in
from .observation import Observation, observed
from .taps.place import user_place

__all__ = ["SanitizeResult", "TensorRange", "sanitize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRange:
    """Minimum and maximum of one tensor; both NaN when it holds a NaN."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizeResult(ResultMixin):
    """What a look at some tensors showed.

    Attributes:
        issues: one per tensor that is not finite.
        ranges: of the tensors that hold real numbers.
        not_evaluated: tensors without values, with the reason.
        fail_on: severity from which an issue fails the result.
    """

    issues: tuple[Issue, ...]
    ranges: tuple[TensorRange, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    fail_on: Severity = Severity.LOW


def sanitize(*tensors: object, **named: object) -> SanitizeResult:
    """Say which tensors hold a NaN or an infinity.

    Args:
        tensors: tensors, or tuples, lists, mappings and dataclasses of them; called by their
            position in messages.
        named: the same, called by their names.

    Returns:
        A result with ``passed``, ``issues`` and the ranges; nothing is attached to the tensors.

    Raises:
        UsageError: an argument holds no tensor.

    Example::

        nabla.sanitize(batch, weights=model.state_dict()).raise_if_failed()
    """
    place = user_place()
    given = {**{f"argument {index}": value for index, value in enumerate(tensors)}, **named}
    if not given:
        raise UsageError("sanitize(): give it at least one tensor")
    found = [(name, tensor) for key in given for name, tensor in _tensors(key, given[key])]
    with torch.no_grad():
        looks = [observed(tensor, name, place, None) for name, tensor in found]
    empty = [name for name, tensor in found if tensor.is_meta]
    return SanitizeResult(
        issues=tuple(look.issue for look in looks if look.issue is not None),
        ranges=tuple(_range(look) for look in looks if look.low is not None),
        not_evaluated=tuple(
            NotEvaluated(rule="NUM", reason=f"{name} is a meta tensor, which has no values")
            for name in empty
        ),
    )


def _tensors(name: str, value: object) -> list[tuple[str, Tensor]]:
    found = list(tensors_in(value, name))
    if not found:
        raise UsageError(
            f"sanitize({name}={type(value).__name__}): holds no tensor; give tensors, or tuples, "
            "lists, mappings or dataclasses of them"
        )
    return found


def _range(look: Observation) -> TensorRange:
    low = float("nan") if look.low is None else look.low
    high = float("nan") if look.high is None else look.high
    return TensorRange(name=look.name, low=low, high=high)

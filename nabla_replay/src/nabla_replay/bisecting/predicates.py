"""What makes a step bad."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from torch.nn import Module

from ..capturing.parts import Parts

__all__ = [
    "MetricPredicate",
    "StatePredicate",
    "StateView",
    "metric_greater_than",
    "metric_less_than",
    "metric_nonfinite",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPredicate:
    """A step is bad by a recorded number. NaN is bad, whatever the limit.

    Attributes:
        metric: its name: ``loss``, ``lr``, or what was given as ``metrics``.
        told: in words, for messages.
        is_bad: decides one value.
    """

    metric: str
    told: str
    is_bad: Callable[[float], bool] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """What a predicate about the state may look at.

    Attributes:
        step: the last step that the state contains; ``None`` before the first.
        state: the recorded state by component, or what was restored from it; read only.
        parts: the program with that state, if one was given.
        metrics: recorded numbers of that step.
    """

    step: int | None
    state: Mapping[str, object]
    parts: Parts | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def model(self) -> Module | None:
        """The model with that state, if a program was given."""
        return None if self.parts is None else self.parts.model


StatePredicate: TypeAlias = Callable[[StateView], bool]
"""Says whether a state is bad."""


def metric_greater_than(metric: str, limit: float) -> MetricPredicate:
    """A step is bad when the metric exceeds ``limit``, or is NaN."""
    return MetricPredicate(
        metric=metric, told=f"{metric} > {limit:g}", is_bad=lambda value: not value <= limit
    )


def metric_less_than(metric: str, limit: float) -> MetricPredicate:
    """A step is bad when the metric is below ``limit``, or is NaN."""
    return MetricPredicate(
        metric=metric, told=f"{metric} < {limit:g}", is_bad=lambda value: not value >= limit
    )


def metric_nonfinite(metric: str) -> MetricPredicate:
    """A step is bad when the metric is NaN or infinite."""
    return MetricPredicate(
        metric=metric,
        told=f"{metric} is not finite",
        is_bad=lambda value: not math.isfinite(value),
    )

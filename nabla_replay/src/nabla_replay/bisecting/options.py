"""What a person may ask of a bisection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypedDict

from torch.nn import Module

from nabla_core.errors import UsageError

from .predicates import (
    MetricPredicate,
    StatePredicate,
    metric_greater_than,
    metric_less_than,
    metric_nonfinite,
)

__all__ = ["BisectArguments", "chosen_predicate"]

_KNOWN = (
    *("metric", "greater_than", "less_than", "nonfinite", "rank", "progress", "build", "model"),
    *("optimizer", "scheduler", "scaler", "extra", "loader", "step_fn"),
)


class BisectArguments(TypedDict, total=False):
    """Keyword arguments of :func:`nabla_replay.bisect`.

    Attributes:
        metric: name of a recorded number; bad is what ``greater_than``, ``less_than`` or
            ``nonfinite`` says, and without them what is not finite.
        greater_than: limit.
        less_than: limit.
        nonfinite: NaN or infinite.
        rank: whose record.
        progress: told the steps done and to do.
        build: as of :func:`nabla_replay.replay`, as all that follow.
    """

    metric: str | None
    greater_than: float | None
    less_than: float | None
    nonfinite: bool
    rank: int
    progress: Callable[[int, int], None] | None
    build: Callable[[], object] | None
    model: Module | None
    optimizer: object
    scheduler: object
    scaler: object
    extra: Mapping[str, object] | None
    loader: Iterable[object] | None
    step_fn: Callable[..., object] | None


def chosen_predicate(
    predicate: MetricPredicate | StatePredicate | None, given: Mapping[str, object]
) -> MetricPredicate | StatePredicate:
    """Return the one predicate that was asked for.

    Raises:
        UsageError: there is none, more than one, or an option is unknown.
    """
    unknown = [name for name in given if name not in _KNOWN]
    if unknown:
        raise UsageError(
            f"bisect({unknown[0]}=...): unknown option; the options are {', '.join(_KNOWN)}"
        )
    metric = given.get("metric")
    if predicate is not None:
        if metric is not None:
            raise UsageError("bisect: give a predicate or metric=..., not both")
        if not isinstance(predicate, MetricPredicate):
            _check_function(predicate)
        return predicate
    if not isinstance(metric, str):
        raise UsageError(
            'bisect: needs a predicate, or metric="loss" with greater_than=..., less_than=... or '
            "nonfinite=True"
        )
    above, below = given.get("greater_than"), given.get("less_than")
    if above is not None and below is not None:
        raise UsageError("bisect: give greater_than=... or less_than=..., not both")
    if isinstance(above, (int, float)):
        return metric_greater_than(metric, float(above))
    if isinstance(below, (int, float)):
        return metric_less_than(metric, float(below))
    return metric_nonfinite(metric)


def _check_function(predicate: object) -> None:
    """Say at once that a function cannot be asked about a state."""
    if not callable(predicate):
        raise UsageError(f"bisect({type(predicate).__name__}): needs a function of a state")
    try:
        inspect.signature(predicate).bind(None)
    except TypeError as error:
        name = getattr(predicate, "__name__", type(predicate).__name__)
        raise UsageError(
            f"bisect: the predicate must take the state, as in {name}(state), and nothing else "
            f"without a default: {error}"
        ) from error
    except ValueError:
        return  # of a function that is no Python nothing is known

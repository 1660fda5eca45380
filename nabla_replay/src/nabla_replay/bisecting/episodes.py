"""All bad episodes of a recorded number, in one pass: exact, whatever the run does between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..replaying.history import Segment
from ..store.entries import StepEntry
from .predicates import MetricPredicate

__all__ = ["Episode", "bad_episodes", "lineage", "metric_names", "metric_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Recorded steps in a row that are bad.

    Attributes:
        first: first bad step.
        last: last bad step.
        last_good: recorded step before it; ``None`` if the run is bad from its first step on.
        value: of the number at ``first``.
    """

    first: int
    last: int
    last_good: int | None
    value: float


def lineage(segments: Sequence[Segment]) -> list[StepEntry]:
    """Return the steps that led to the end: a resumed segment replaces what it repeats."""
    steps: list[StepEntry] = []
    for segment in segments:
        if segment.steps:
            begin = segment.steps[0].step
            steps = [entry for entry in steps if entry.step < begin]
            steps += segment.steps
    return steps


def metric_of(entry: StepEntry, metric: str) -> float | None:
    """Return a recorded number of a step."""
    return entry.loss if metric == "loss" else entry.signals.get(metric)


def metric_names(steps: Iterable[StepEntry]) -> list[str]:
    """Return the names of all recorded numbers."""
    found: dict[str, None] = {}
    for entry in steps:
        if entry.loss is not None:
            found["loss"] = None
        found.update(dict.fromkeys(entry.signals))
    return list(found)


def bad_episodes(steps: Iterable[StepEntry], predicate: MetricPredicate) -> list[Episode]:
    """Return the maximal runs of bad steps, in order; steps without the number are passed over."""
    found: list[Episode] = []
    last_good: int | None = None
    open_since: tuple[int, float, int | None] | None = None
    last_bad = 0
    for entry in steps:
        value = metric_of(entry, predicate.metric)
        if value is None:
            continue
        if predicate.is_bad(value):
            if open_since is None:
                open_since = (entry.step, value, last_good)
            last_bad = entry.step
        else:
            if open_since is not None:
                found.append(_episode(open_since, last_bad))
                open_since = None
            last_good = entry.step
    if open_since is not None:
        found.append(_episode(open_since, last_bad))
    return found


def _episode(begun: tuple[int, float, int | None], last: int) -> Episode:
    first, value, last_good = begun
    return Episode(first=first, last=last, last_good=last_good, value=value)

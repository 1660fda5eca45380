"""What a recorded loop did around its steps, where a replay has to do the same.

A log says how many batches were taken when a step was over, and which rates were set; not which of
these batches the step used, nor who set the rates. A loop may take batches ahead of the steps that
use them, or set a rate between two steps. What fits is found by trying: a guess that is wrong does
not give the recorded bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Literal

from ..store.entries import StepEntry
from .counters import Counter
from .drawing import Draws
from .history import Segment
from .targets import target_of

__all__ = ["Habits", "Rates", "Uses", "guesses", "takes_ahead"]

Uses = Literal["taken", "queued", "queued over epochs", "last", "first"]
"""Which batches a step uses: all that were taken for it; the oldest that wait; the last or the
first of those that were taken for it."""

Rates = Literal["step", "before", "after", "schedule", "schedule later"]
"""Who sets the learning rates: ``step()``; the loop, before or after it; a schedule that the loop
calls after ``step()``, before or after the step is recorded."""

_DATA = frozenset(("loader", "data", "batch", "rng", "loss", "gradient", "buffer", "idle"))
_RATES = frozenset(("optimizer", "scheduler", "parameter", "loss", "gradient"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a loop goes around its steps.

    Attributes:
        uses: which batches a step uses.
        per_step: how many, where they are queued.
        rates: who sets the learning rates.
        from_empty: begin where no batch waits: those that do hold what was drawn for them, which
            depends on the steps that were taken since.
        counters: numbers of the program's own that count its steps.
        counted_before: how many they had counted when the segment began.
        draws: by index of a step, what the loop drew from the global generators before it.
    """

    uses: Uses = "taken"
    per_step: int = 1
    rates: Rates = "step"
    from_empty: bool = False
    counters: tuple[Counter, ...] = ()
    counted_before: int = 0
    draws: tuple[tuple[int, Draws], ...] = ()

    @property
    def is_queue(self) -> bool:
        """Whether batches wait for their step."""
        return self.uses.startswith("queued")


def guesses(now: Habits, segment: Segment, index: int, component: str) -> Iterator[Habits]:
    """Yield other habits that may explain why a step differs.

    Args:
        now: what was assumed so far.
        segment: of the step.
        index: of the step.
        component: in which it differs first; ``idle`` where the replayed program did not act.
    """
    if component in _DATA and not _is_plain(segment, index):
        yield from _orders(now, segment)
    if component in _RATES:
        found: tuple[Rates, ...] = ("before", "schedule later")
        if not segment.within:
            found = ("before", "after", "schedule", "schedule later")
        yield from (replace(now, rates=one) for one in found if one != now.rates)


def _orders(now: Habits, segment: Segment) -> Iterator[Habits]:
    """Yield other orders in which batches are used."""
    found: list[Habits] = []
    counts = (1, _per_step(segment)) if now.uses == "taken" else (now.per_step,)
    for count in dict.fromkeys(counts):
        if now.uses == "taken":
            found.append(replace(now, uses="queued", per_step=count))
        if now.uses in ("taken", "queued"):
            found.append(replace(now, uses="queued over epochs", per_step=count))
    yield from found
    if now.uses == "taken":
        yield replace(now, uses="last")
        yield replace(now, uses="first")
    if not now.from_empty:
        waiting = found if now.uses == "taken" else [now, *found]
        yield from (replace(one, from_empty=True) for one in waiting if one.is_queue)


def takes_ahead(segment: Segment) -> bool:
    """Whether the first step of an epoch took more batches than those after it: some waited."""
    before = segment.unrecorded
    for advances in _by_epoch(segment.steps):
        usual = max(median_low(advances[1:] or [1]), 1)
        if advances[0] - before * usual > usual:
            return True
        before = 0
    return False


def _by_epoch(steps: list[StepEntry]) -> Iterator[list[int]]:
    """Yield for each epoch how many batches each of its steps took."""
    epoch, position, found = -1, 0, list[int]()
    for target in map(target_of, steps):
        if target is None:
            continue
        if target[0] != epoch:
            if found:
                yield found
            epoch, position, found = target[0], 0, []
        found.append(target[1] - position)
        position = target[1]
    if found:
        yield found


def _is_plain(segment: Segment, index: int) -> bool:
    """Whether each step up to this one took one batch: there is nothing to be guessed."""
    if target_of(segment.steps[index]) is None:
        return True
    return not segment.unrecorded and all(
        set(advances) == {1} for advances in _by_epoch(segment.steps[: index + 1])
    )


def _per_step(segment: Segment) -> int:
    """How many batches a step uses on average, rounded down: some may never have been used."""
    advances = [one for epoch in _by_epoch(segment.steps) for one in epoch]
    return max(sum(advances) // max(len(advances) + segment.unrecorded, 1), 1)

"""Batches that a loop has taken from its loader before the steps that use them."""

from __future__ import annotations

from collections import deque

from .habits import Habits
from .history import Segment
from .targets import target_of

__all__ = ["Waiting", "waiting_before"]


class Waiting:
    """The batches that wait for their step, the oldest first.

    Args:
        habits: which of them a step uses.
    """

    def __init__(self, habits: Habits) -> None:
        self._habits = habits
        self._batches: deque[object] = deque()

    @property
    def goes_on(self) -> bool:
        """Whether what waits at the end of an epoch is used in the next one."""
        return self._habits.uses == "queued over epochs"

    def arrive(self, batch: object) -> None:
        """Let a batch wait."""
        self._batches.append(batch)

    def epoch_ended(self) -> None:
        """Drop what the loop has not used."""
        if not self.goes_on:
            self._batches.clear()

    def of_step(self) -> list[object]:
        """Return the batches that the next step uses; what it passes over is dropped."""
        waiting = self._batches
        if self._habits.is_queue:
            count = min(self._habits.per_step, len(waiting))
            return [waiting.popleft() for _ in range(count)]
        used = [waiting[-1 if self._habits.uses == "last" else 0]] if waiting else []
        waiting.clear()
        return used


def waiting_before(
    segment: Segment, records: int, habits: Habits, epoch_batches: int | None
) -> int:
    """Return how many batches wait after so many steps of a segment.

    Args:
        segment: says how many were taken when each step was over.
        records: steps that were taken.
        habits: which of them a step uses.
        epoch_batches: how many an epoch has, where that is known.
    """
    if not habits.is_queue:
        return 0
    epoch, position, waiting = -1, 0, 0
    for number, target in enumerate(map(target_of, segment.steps[:records])):
        if target is None:
            continue
        if target[0] != epoch:
            left = max((epoch_batches or position) - position, 0) if epoch >= 0 else 0
            waiting = waiting + left if habits.uses == "queued over epochs" else 0
            epoch, position = target[0], 0
        waiting += target[1] - position
        position = target[1]
        steps = 1 + (segment.unrecorded if not number else 0)
        waiting = max(waiting - steps * habits.per_step, 0)
    return waiting

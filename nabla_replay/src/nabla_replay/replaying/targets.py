"""Which batches a recorded step took, as far as its record says."""

from __future__ import annotations

from collections.abc import Sequence

from ..store.entries import StepEntry

__all__ = ["batches_of_last", "target_of"]


def batches_of_last(steps: Sequence[StepEntry]) -> int:
    """Return how many batches the last step took, as far as that was recorded."""
    places = [target_of(step) for step in steps[-2:]]
    if len(places) < 2 or places[0] is None or places[1] is None or places[0][0] != places[1][0]:
        return 1
    return max(places[1][1] - places[0][1], 1)


def target_of(recorded: StepEntry) -> tuple[int, int] | None:
    """Epoch and position in the data after a step, as far as they were recorded."""
    epoch, _, position = recorded.digests.get("loader", "").partition(":")
    return (int(epoch), int(position)) if epoch.isdecimal() and position.isdecimal() else None

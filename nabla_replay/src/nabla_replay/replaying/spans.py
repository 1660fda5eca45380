"""Which recorded steps a person means."""

from __future__ import annotations

from ..errors import RecordError
from .history import Segment

__all__ = ["spans"]


def spans(
    segments: tuple[Segment, ...], from_step: int | None, to_step: int | None
) -> list[tuple[Segment, int, int]]:
    """Return the steps that were asked for, as first and last index in each segment.

    Raises:
        RecordError: none of them was recorded.
    """
    found = []
    for segment in segments:
        wanted = [
            index
            for index, entry in enumerate(segment.steps)
            if (from_step is None or entry.step >= from_step)
            and (to_step is None or entry.step <= to_step)
        ]
        if wanted:
            found.append((segment, wanted[0], wanted[-1]))
    if not found:
        known = [entry.step for segment in segments for entry in segment.steps]
        there = f"steps {min(known)} to {max(known)} were" if known else "no step was"
        raise RecordError(f"nothing to replay: {there} recorded")
    return found

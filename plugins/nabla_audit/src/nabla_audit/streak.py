"""Counting of consecutive occurrences, per object."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["CONSECUTIVE", "Streaks"]

CONSECUTIVE = 3
"""Steps in a row that a pattern needs to be a verdict: once may be an accident."""


class Streaks:
    """Counts for each key how often in a row something held."""

    def __init__(self) -> None:
        self._since: dict[Hashable, tuple[int, int]] = {}

    @property
    def running(self) -> bool:
        """Whether anything held at its last occurrence."""
        return bool(self._since)

    def count(self, key: Hashable, holds: bool, step: int) -> int:
        """Note one occurrence or its absence and return the length of the current run."""
        if not holds:
            if self._since:
                self._since.pop(key, None)
            return 0
        length, since = self._since.get(key, (0, step))
        self._since[key] = (length + 1, since)
        return length + 1

    def since(self, key: Hashable) -> int:
        """Return the step at which the current run began."""
        return self._since[key][1]

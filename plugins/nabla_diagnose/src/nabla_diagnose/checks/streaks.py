"""Counting of consecutive measurements, per layer."""

from __future__ import annotations

from ..chart import Moment

__all__ = ["Streaks"]


class Streaks:
    """Counts for each layer how often in a row something held."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[int, Moment]] = {}

    def count(self, layer: str, holds: bool, at: Moment) -> int:
        """Note one measurement and return the length of the current run."""
        if not holds:
            self._runs.pop(layer, None)
            return 0
        length, since = self._runs.get(layer, (0, at))
        self._runs[layer] = (length + 1, since)
        return length + 1

    def since(self, layer: str) -> Moment:
        """Return where the current run began."""
        return self._runs[layer][1]

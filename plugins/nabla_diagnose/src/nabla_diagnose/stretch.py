"""Some rows in a row that log the same signals, all finite: what checks may pass over at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["Stretch", "are_finite", "joined"]


class Stretch:
    """Rows in a row, each a later step than the one before.

    Args:
        steps: ``[T]`` steps.
        columns: signal to ``[T]`` finite values; ``loss`` is among them.
    """

    __slots__ = ("_highest", "columns", "steps")

    def __init__(self, steps: Sequence[int], columns: Mapping[str, Sequence[float]]) -> None:
        self.steps = steps
        self.columns = columns
        self._highest: dict[str, float] = {}

    def first(self, rows: int) -> Stretch:
        """Return the first rows."""
        if rows == len(self.steps):
            return self
        columns = {name: values[:rows] for name, values in self.columns.items()}
        return Stretch(self.steps[:rows], columns)

    def highest(self, name: str, absent: float = -math.inf) -> float:
        """Return the highest value of a signal, or ``absent`` where the rows do not log it."""
        value = self._highest.get(name)
        if value is None:
            if name not in self.columns:
                return absent
            value = self._highest[name] = max(self.columns[name])
        return value

    def lowest(self, name: str) -> float:
        """Return the lowest value of a signal that the rows log."""
        return min(self.columns[name])


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Return rows that follow one another as one stretch; all log the same signals."""
    if len(stretches) == 1:
        return stretches[0]
    steps: list[int] = []
    columns: dict[str, list[float]] = {name: [] for name in stretches[0].columns}
    for stretch in stretches:
        steps += stretch.steps
        for name, values in stretch.columns.items():
            columns[name] += values
    return Stretch(steps, columns)


def are_finite(columns: Mapping[str, Sequence[float]]) -> bool:
    """Whether all values of all signals are finite; ``False``, too, where their sum overflows."""
    return all(math.isfinite(sum(values)) for values in columns.values())

"""Rows of a run that wait until their block is complete, because no check needs to see them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import le

from .calm import Calm
from .stretch import Stretch

__all__ = ["CalmRows"]


class CalmRows:
    """Takes a row in only if it logs the expected signals, at a later step, between the bounds.

    Attributes:
        steps: of the rows that are waiting.
        room: number of rows until the block is complete; 0 when none are taken in.
    """

    __slots__ = (
        "_calm",
        "_highest",
        "_last",
        "_loss",
        "_lowest",
        "_names",
        "_values",
        "room",
        "steps",
    )

    def __init__(self) -> None:
        self._highest: list[float] = []
        self._lowest: list[float] = []
        self.close()

    def open(self, calm: Calm, names: tuple[str, ...], step: int, room: int) -> None:
        """Take rows in from now on.

        Args:
            calm: the bounds.
            names: the signals of the rows, in the order in which they come.
            step: rows must be later than it.
            room: number of rows until the block is complete.
        """
        self._calm: Calm | None = calm
        self._names: tuple[str, ...] | None = names
        self._last, self.room = step, room
        self._loss = names.index("loss")
        self._highest = list(calm.highest.values())
        self._lowest = list(calm.lowest.values())

    def close(self) -> None:
        """Take no rows in until :meth:`open`; none may be waiting."""
        self._calm = self._names = None
        self._last = self._loss = self.room = 0
        self.steps: list[int] = []
        self._values: list[float] = []

    def take(self, step: int, signals: Mapping[str, float | None]) -> bool:
        """Keep a row; ``False`` if it has to be looked at."""
        if tuple(signals) != self._names or step <= self._last:
            return False
        try:
            row = list(map(float, signals.values()))  # type: ignore[arg-type]
        except TypeError:
            return False  # something was not measured
        within = all(map(le, row, self._highest)) and all(map(le, self._lowest, row))
        if not within and not self._fits(row):
            return False
        self.steps.append(step)
        self._values += row
        self._last = step
        self.room -= 1
        return True

    def drain(self) -> Stretch:
        """Return the rows that are waiting, at least one, and take no more in."""
        names = self._names or ()
        values, width = self._values, len(names)
        columns = {name: values[place::width] for place, name in enumerate(names)}
        stretch = Stretch(self.steps, columns)
        self.close()
        return stretch

    def _fits(self, row: list[float]) -> bool:
        """Whether a row that is beyond the cheap bounds is between the true ones."""
        calm = self._calm
        if calm is None or not calm.allows(row[self._loss]):
            return False
        self._highest = list(calm.highest.values())
        return all(map(le, row, self._highest)) and all(map(le, self._lowest, row))

"""Rows of a run that wait until their block is complete, because no check needs to see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter, le, methodcaller
from typing import cast

from .calm import Calm
from .stretch import Stretch

__all__ = ["CalmRows"]

_Signals = Mapping[str, float | None]
_Pick = Callable[[_Signals], Iterable[float]]  # raises TypeError where a value is None
_MOST_FORMS = 16
_values_of = cast("_Pick", methodcaller("values"))


class CalmRows:
    """Takes a row in only if it logs the expected signals, at a later step, between the bounds.

    Attributes:
        names: the signals that are taken of each row.
        steps: of the rows that are waiting.
        room: number of rows until the block is complete; 0 when none are taken in.
    """

    __slots__ = (
        "_calm",
        "_forms",
        "_highest",
        "_known_forms",
        "_last",
        "_loss",
        "_lowest",
        "_values",
        "names",
        "room",
        "steps",
    )

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self._calm: Calm | None = None
        self._forms: dict[tuple[str, ...], _Pick] = {}
        self._known_forms: dict[tuple[str, ...], _Pick] = {}
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
        if names != self.names:
            self.names, self._known_forms = names, {names: _values_of}
            self._loss = names.index("loss")
        self._calm, self._forms = calm, self._known_forms
        self._last, self.room = step, room
        self._highest = list(calm.highest.values())
        self._lowest = list(calm.lowest.values())

    def close(self) -> None:
        """Take no rows in until :meth:`open`; none may be waiting."""
        self._calm, self._forms = None, {}
        self._last = self.room = 0
        self.steps: list[int] = []
        self._values: list[float] = []

    def learn(self, form: tuple[str, ...]) -> None:
        """Take rows in, too, that log further signals, which nobody looks at.

        Args:
            form: all signals of such a row, in the order in which they come.
        """
        if len(self._known_forms) < _MOST_FORMS:
            several = len(self.names) > 1
            self._known_forms[form] = itemgetter(*self.names) if several else _loss_of

    def take(self, step: int, signals: _Signals) -> bool:
        """Keep a row; ``False`` if it has to be looked at."""
        pick = self._forms.get(tuple(signals))
        if pick is None or step <= self._last:
            return False
        try:
            row = [*map(float, pick(signals))]
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
        values, width = self._values, len(self.names)
        columns = {name: values[place::width] for place, name in enumerate(self.names)}
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


def _loss_of(signals: _Signals) -> tuple[float]:
    return (cast("float", signals["loss"]),)

"""Rows of a run that wait until their block is complete, because no check needs to see them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import cast

from .calm import Calm
from .stretch import Stretch

__all__ = ["CalmRows"]

_Signals = Mapping[str, float | None]
_Row = tuple[float, ...]
_Pick = Callable[[_Signals], _Row]  # raises KeyError where a signal is missing
_MOST_FORMS = 16
_FIRST = ("loss", "lr", "update_ratio")
"""The signals that have bounds; of the others it is enough that they are finite."""


class CalmRows:
    """Takes a row in only if it logs the expected signals, at a later step, between the bounds.

    This is what most rows of a run cost, hence the flat attributes.

    Attributes:
        steps: of the rows that are waiting.
        room: number of rows until the block is complete; 0 when none are taken in.
    """

    __slots__ = (
        "_calm",
        "_highest_loss",
        "_highest_rate",
        "_highest_update",
        "_last",
        "_lowest_rate",
        "_lowest_update",
        "_names",
        "_order",
        "_pick",
        "_rate",
        "_update",
        "_values",
        "_wider",
        "_width",
        "room",
        "steps",
    )

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._values: list[float] = []
        self._calm: Calm | None = None
        self._last: float = math.inf
        self._names: tuple[str, ...] = ()
        self._order: tuple[str, ...] = ()
        self._pick: _Pick = _nothing
        self._wider: set[tuple[str, ...]] = set()
        self._width = self._rate = self._update = 0
        self._highest_loss = self._highest_rate = self._highest_update = math.inf
        self._lowest_rate = self._lowest_update = -math.inf
        self.room = 0

    def open(self, calm: Calm, names: tuple[str, ...], step: int, room: int) -> None:
        """Take rows in from now on.

        Args:
            calm: the bounds.
            names: the signals of the rows.
            step: rows must be later than it.
            room: number of rows until the block is complete.
        """
        if names != self._names:
            self._expect(names)
        if calm is not self._calm:
            self._bound(calm)
        self._highest_loss = calm.highest["loss"]
        self._last, self.room = step, room

    def close(self) -> None:
        """Take no rows in until :meth:`open`; none may be waiting."""
        self._calm, self._last, self.room = None, math.inf, 0
        self.steps, self._values = [], []

    def learn(self, form: tuple[str, ...]) -> None:
        """Take rows in, too, that log further signals, which nobody looks at.

        Args:
            form: all signals of such a row, in the order in which they come.
        """
        if len(self._wider) < _MOST_FORMS:
            self._wider.add(form)

    def take(self, step: int, signals: _Signals) -> bool:
        """Keep a row; ``False`` if it has to be looked at."""
        if step <= self._last:
            return False
        if len(signals) != self._width and tuple(signals) not in self._wider:
            return False
        try:
            row = self._pick(signals)
            total = sum(row)
        except (KeyError, OverflowError, TypeError):
            return False  # something was not measured
        if not (
            type(total) is float
            and total - total == 0.0  # so that each is finite
            and row[0] <= self._highest_loss
            and self._lowest_rate <= row[self._rate] <= self._highest_rate
            and self._lowest_update <= row[self._update] <= self._highest_update
        ):
            fitting = self._fitting(row)
            if fitting is None:
                return False
            row = fitting
        self.steps.append(step)
        self._values += row
        self._last = step
        self.room -= 1
        return True

    def drain(self) -> Stretch:
        """Return the rows that are waiting, at least one, and take no more in until opened."""
        numbers, width = array("d", self._values), self._width
        columns = {name: numbers[place::width].tolist() for place, name in enumerate(self._order)}
        stretch = Stretch(self.steps, columns)
        self._last, self.room = math.inf, 0
        self.steps, self._values = [], []
        return stretch

    # ------------------------------------------------------------------ private
    def _expect(self, names: tuple[str, ...]) -> None:
        self._names, self._wider, self._width = names, set(), len(names)
        self._order, self._pick, self._rate, self._update = _layout_of(names)

    def _bound(self, calm: Calm) -> None:
        lowest, highest = calm.lowest, calm.highest
        self._calm = calm
        self._lowest_rate = lowest.get("lr", -math.inf)
        self._highest_rate = highest.get("lr", math.inf)
        self._lowest_update = lowest.get("update_ratio", -math.inf)
        self._highest_update = highest.get("update_ratio", math.inf)

    def _fitting(self, row: _Row) -> _Row | None:
        """Return a row as plain numbers, if it is between the true bounds."""
        calm = self._calm
        try:
            row = tuple(map(float, row))
        except TypeError:
            return None
        if calm is None or not all(map(math.isfinite, row)) or not calm.allows(row[0]):
            return None
        self._highest_loss = calm.highest["loss"]
        rate, update = row[self._rate], row[self._update]
        within = self._lowest_rate <= rate <= self._highest_rate
        return row if within and self._lowest_update <= update <= self._highest_update else None


@lru_cache(maxsize=64)
def _layout_of(names: tuple[str, ...]) -> tuple[tuple[str, ...], _Pick, int, int]:
    """Return the order in which signals are kept, what picks them, and where the rates are.

    Where a row logs no rate, the loss stands in for it, between bounds that hold all.
    """
    first = tuple(name for name in _FIRST if name in names)
    order = (*first, *(name for name in names if name not in first))
    pick = cast("_Pick", itemgetter(*order)) if len(order) > 1 else _loss_of
    rate, update = (order.index(name) if name in first else 0 for name in _FIRST[1:])
    return order, pick, rate, update


def _nothing(signals: _Signals) -> _Row:
    return ()


def _loss_of(signals: _Signals) -> _Row:
    loss = signals["loss"]
    if loss is None:
        raise KeyError("loss")
    return (loss,)

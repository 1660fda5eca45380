"""Rows of a run that wait until their block is complete, because no check needs to see them.

They are kept on after that: of a block only the losses and the last row are needed at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter, lt
from typing import cast

from nabla_core.records import StepRecord

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
        steps: of the rows that are kept.
        passed: how many of them have been passed on; the others are waiting.
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
        "passed",
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
        self._width = self._rate = self._update = self.passed = 0
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
        """Take no rows in until :meth:`open`; none may be kept."""
        self._calm, self._last, self.room = None, math.inf, 0

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

    def take_all(self, records: Sequence[StepRecord]) -> int:
        """Keep as many of these rows as there is room for, as :meth:`take` would one by one.

        Returns:
            How many were kept; 0 if any of them has to be looked at by itself.
        """
        some = records[: self.room]
        steps, rows = [record.step for record in some], [record.signals for record in some]
        rises = all(map(lt, (self._last, *steps), steps))
        if not some or not rises or {*map(len, rows)} != {self._width}:
            return 0
        try:
            values = [*map(self._pick, rows)]
            total = sum(map(sum, values))
        except (KeyError, OverflowError, TypeError):
            return 0  # something was not measured
        columns = [*zip(*values, strict=True)]
        losses, rates, updates = columns[0], columns[self._rate], columns[self._update]
        if not (
            type(total) is float
            and total - total == 0.0  # so that each is finite
            and max(losses) <= self._highest_loss
            and self._lowest_rate <= min(rates)
            and max(rates) <= self._highest_rate
            and self._lowest_update <= min(updates)
            and max(updates) <= self._highest_update
        ):
            return 0
        self.steps += steps
        self._values += chain.from_iterable(values)
        self._last = steps[-1]
        self.room -= len(steps)
        return len(steps)

    def pass_on(self) -> tuple[list[int], list[float], dict[str, float]]:
        """Return the rows that are waiting, at least one, and take no more in until opened.

        Returns:
            Their steps, their losses, and all that the last of them has.
        """
        passed, values, width = self.passed, self._values, self._width
        last = dict(zip(self._order, map(float, values[-width:]), strict=True))
        losses = [*map(float, values[passed * width :: width])]
        self.passed, self._last, self.room = len(self.steps), math.inf, 0
        return self.steps[passed:], losses, last

    def drain(self) -> Stretch:
        """Return the rows that are kept, all of which were passed on, and keep them no longer."""
        values, width = self._values, self._width
        if {*map(type, values)} != {float}:
            values = [*map(float, values)]
        columns = {name: values[place::width] for place, name in enumerate(self._order)}
        stretch = Stretch(self.steps, columns)
        self.steps, self._values, self.passed = [], [], 0
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

"""Bounds of the signals between which no check needs to look at a row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from .stretch import Stretch

if TYPE_CHECKING:
    from .chart import Chart

__all__ = ["Calm", "Ceilings"]

Ceilings: TypeAlias = "Callable[[Chart], Iterator[float]]"

_MOST = sys.float_info.max
_BOUND = ("lr", "update_ratio")


class Calm:
    """What a row may log without any check having to see it by itself; every check narrows it.

    The bounds hold until a row is looked at. A bound that is no number holds no row.

    Args:
        names: the signals of the rows: these and no others, ``loss`` among them.

    Attributes:
        highest: signal to its highest value.
        lowest: signal to its lowest value.
        rows: number of rows for which the bounds hold.
    """

    __slots__ = ("_ceilings", "_fixed", "highest", "lowest", "rows")

    def __init__(self, names: Iterable[str]) -> None:
        self.highest = dict.fromkeys(names, _MOST)
        self.lowest = dict.fromkeys(self.highest, -_MOST)
        self.rows = math.inf
        self._fixed: float | None = None
        self._ceilings: list[tuple[float, Iterator[float]]] = []

    def at_most(self, name: str, value: float) -> None:
        """Bound ``loss``, ``lr`` or ``update_ratio``; rows above are looked at."""
        bound = self.highest.get(name, -_MOST)
        if bound == bound and not value >= bound:
            self.highest[name] = value

    def at_least(self, name: str, value: float) -> None:
        """Bound ``lr`` or ``update_ratio``; rows below are looked at."""
        bound = self.lowest.get(name, _MOST)
        if bound == bound and not value <= bound:
            self.lowest[name] = value

    def last_for(self, rows: float) -> None:
        """Have the bounds hold for so many rows only, then they are asked for anew."""
        self.rows = min(self.rows, rows)

    def put_under(self, ceilings: Iterable[Ceilings], chart: Chart) -> None:
        """Bound the loss until the next block is complete, by what costs least at first.

        Args:
            ceilings: of each check what gives the bounds of the loss, the cheapest one first.
            chart: of the run.
        """
        if self._fixed is None:
            self._fixed = self.highest["loss"]
        known: list[tuple[float, Iterator[float]]] = []
        self._ceilings = known
        highest = self._fixed
        for ask in ceilings:
            bounds = ask(chart)
            cheapest = next(bounds)
            known.append((cheapest, bounds))
            if cheapest < highest:
                highest = cheapest
        self.highest["loss"] = highest

    def allows(self, loss: float) -> bool:
        """Whether a loss is within the bounds, be they worked out for it."""
        if loss <= self.highest["loss"]:
            return True
        if self._fixed is None or not loss <= self._fixed:
            return False
        for place, (bound, bounds) in enumerate(self._ceilings):
            if not loss <= bound:
                truer = next((found for found in bounds if loss <= found), None)
                if truer is None:
                    return False
                self._ceilings[place] = truer, bounds
        self.highest["loss"] = min([self._fixed, *[bound for bound, _ in self._ceilings]])
        return True

    def holds(self, stretch: Stretch) -> bool:
        """Whether all rows lie between the bounds."""
        return self.allows(stretch.highest("loss")) and self.holds_rates(stretch)

    def holds_rates(self, stretch: Stretch) -> bool:
        """Whether all signals but the loss lie between the bounds."""
        return all(
            stretch.highest(name) <= self.highest[name]
            and stretch.lowest(name) >= self.lowest[name]
            for name in _BOUND
            if name in stretch.columns
        )

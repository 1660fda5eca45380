"""RUN105 in the first rows: a loss that blew up at once, and never came below its first value."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import BLOCK_ROWS, Chart, Moment
from ..robust import median
from ..rules.level import DIVERGENCE
from .check import Check, Finding, verdict

__all__ = ["BlowUpCheck"]

_EARLY_BLOCKS = 2
_AT_BLOCKS = 6
_TIMES = 5.0
_ROWS = 3
_BACK = 0.95
_EARLY_ROWS = 100


class BlowUpCheck(Check):
    """Reports a start that other rules take as the level of the run, because it is so high.

    The first loss is that of the untrained model. If the next ones are far above it, the level of
    the first ten rows is that of the damage, and all that follows looks like progress.
    """

    rules = (DIVERGENCE,)
    first_block = _EARLY_BLOCKS

    def __init__(self) -> None:
        self._early: list[float] = []

    def row(self, chart: Chart) -> Iterable[Issue]:
        """Judge the rows before the first one that is not finite."""
        if chart.broken is None or self.done:
            return ()
        self.done = True
        losses = chart.recent(_EARLY_ROWS)
        if chart.rows > _EARLY_ROWS or not chart.judged or len(losses) <= _ROWS:
            return ()
        limit = _TIMES * abs(losses[0])
        above = [row for row, loss in enumerate(losses) if loss > limit]
        if len(above) < _ROWS or max(losses) <= _TIMES * limit or median(losses[-10:]) <= limit:
            return ()
        return self._report(chart, (losses[0], max(losses), limit), above[0])

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`; calm rows are finite."""
        return True

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        if chart.block_count >= _AT_BLOCKS:
            return math.inf
        return _EARLY_BLOCKS if chart.block_count < _EARLY_BLOCKS else _AT_BLOCKS

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Judge the first rows by what the loss is after sixty."""
        if chart.block_count == _EARLY_BLOCKS:
            self._early = chart.recent(_EARLY_BLOCKS * BLOCK_ROWS)
        if chart.block_count != _AT_BLOCKS or not self._early or not chart.judged:
            return ()
        first, level, chance = self._early[0], median(chart.recent(20)), chart.chance
        if chance is None or level < _BACK * min(first, chance):
            return ()  # a first loss alone may be a lucky one
        limit = _TIMES * max(chance, level)
        if max(first, chance) > limit or median(self._early[1:BLOCK_ROWS]) <= limit:
            return ()
        row = next(row for row, loss in enumerate(self._early) if loss > limit)
        return self._report(chart, (first, max(self._early), limit), row)

    @staticmethod
    def _report(chart: Chart, losses: tuple[float, float, float], row: int) -> Iterable[Issue]:
        first, highest, limit = losses
        if chart.found & {"RUN201", "RUN204", "RUN105", "RUN109"}:
            return
        yield verdict(
            DIVERGENCE,
            chart,
            Finding(
                message=f"The loss went from {first:.4g} to {highest:.4g} in the first rows (limit "
                f"{limit:.4g}, from step {_step(chart, row)} on), and did not come "
                "back below its first value.",
                onset=Moment(row, _step(chart, row)),
                evidence={
                    "loss": Quantity(value=highest, limit=limit),
                    "first_loss": first,
                },
            ),
        )


def _step(chart: Chart, row: int) -> int:
    return chart.step - (chart.now.row - row) * chart.stride

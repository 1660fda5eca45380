"""RUN503 for a set of a few batches: the same ones in the same order, each falling by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import lt

from nabla_core.issue import Issue, Quantity

from ..chart import BLOCK_ROWS, Chart, Moment
from ..robust import roughness
from ..rules.samples import UNSHUFFLED
from .check import Check, Finding, verdict

__all__ = ["FewBatchesCheck"]

_PERIODS = range(2, 5)
_TURNS = 20
_AT_BLOCKS = (6, 12)
_TIMES = 8.0
"""Noise from row to row over that of every k-th row; good runs were seen at 2.5."""
_FALLS = 0.9
"""Share of the rows that are below the one a period before."""
_STILL = 1e-4


class FewBatchesCheck(Check):
    """Reports a loss that jumps from row to row, and falls smoothly from every k-th to the next.

    Periods from ten rows on are found by their correlation; here the noise of a batch itself shows
    whether it is the same one.
    """

    rules = (UNSHUFFLED,)
    first_block = _AT_BLOCKS[0]
    looks_back = False

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return next((at for at in _AT_BLOCKS if at > chart.block_count), math.inf)

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        self.done = chart.block_count >= _AT_BLOCKS[-1]
        if chart.block_count not in _AT_BLOCKS or not chart.judged:
            return
        if UNSHUFFLED.id in chart.found:
            return
        losses = chart.recent(chart.block_count * BLOCK_ROWS)
        for period in _PERIODS:
            rows = losses[-_TURNS * period :]
            falling = sum(map(lt, rows[period:], rows))
            if len(rows) < _TURNS * period or falling < _FALLS * (len(rows) - period):
                continue
            times = _times_rougher(rows, period)
            if times > _TIMES:
                self.done = True
                yield self._report(chart, period, times)
            return  # multiples of a period repeat as well

    @staticmethod
    def _report(chart: Chart, period: int, times: float) -> Issue:
        return verdict(
            UNSHUFFLED,
            chart,
            Finding(
                message=f"The same {period} batches come in the same order again and again: from "
                f"row to row the loss jumps {times:.3g} times as far as from every {period}th row "
                f"to the next (limit {_TIMES:g}).",
                onset=Moment(0, chart.blocks[0].start.step),
                evidence={
                    "roughness": Quantity(value=times, limit=_TIMES),
                    "period": Quantity(value=period, unit="rows"),
                },
            ),
        )


def _times_rougher(rows: Sequence[float], period: int) -> float:
    """Return how much rougher the logarithm of the loss is than its phases; 0 for losses <= 0."""
    if min(rows) <= 0.0:
        return 0.0
    logs = [math.log(value) for value in rows]
    smooth = max(roughness(logs[phase::period]) for phase in range(period))
    return roughness(logs) / max(smooth, _STILL)

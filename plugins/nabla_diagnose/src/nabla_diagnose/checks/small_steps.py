"""RUN202, RUN205 and RUN206: steps that change almost nothing, or exactly nothing."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import repeat

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import BLOCK_ROWS, Chart, Moment
from ..robust import median
from ..rules.step_size import OVER_CLIPPING, UPDATE_TOO_SMALL, UPDATES_STOPPED
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["SmallStepsCheck"]

_STOPPED_ROWS = 10
_TINY = 5e-5
"""Share of the parameters' size per step: twenty thousand such steps are needed to move them by
their own size."""
_HALVED = 0.5
"""Share of the start that is a gain, however steep and so noisy the first rows were."""
_NEARLY = 2.0
"""Steps of so many times that size are looked at again: some optimizers shorten them by and by."""
_RATE_BLOCKS = 3
_AT_ROWS = 60
_AGAIN_ROWS = (120, 300)
"""Where steps are tiny, and a few easy or hard batches may have looked like a gain."""
_CLIPPED = 0.05
_ENDED = 0.01
"""Share of its peak below which a rate is that of a schedule at its end."""
_LEAST = math.ulp(0.0)


class SmallStepsCheck(Check):
    """Reports updates of zero, and a run that hardly moves."""

    rules = (UPDATE_TOO_SMALL, OVER_CLIPPING, UPDATES_STOPPED)
    first_block = _RATE_BLOCKS

    def __init__(self) -> None:
        self._zeros = 0
        self._longest = 0
        self._since = Moment(0, 0)
        self._clipped: deque[float] = deque(maxlen=_AT_ROWS)
        self._peak = 0.0
        self._rate_then = 0.0
        self._over = False
        self._again_at = 0
        self._stopped = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        if self._stopped:
            return ()
        coefficient = chart.signals.get("clip_coef")
        if coefficient is not None and not self._over:
            self._clipped.append(coefficient)
        rate = chart.lr
        if rate is not None and rate > self._peak:
            self._peak = rate
        if not self._is_zero(rate, chart.update):
            return ()
        if self._zeros == 1:
            self._since = chart.now
        if self._zeros < max(_STOPPED_ROWS, 3 * self._longest):
            return ()
        return self._stop(chart)

    def _is_zero(self, rate: float | None, update: float | None) -> bool:
        """Count a row in which nothing changed; one in which something did ends the count."""
        if update == 0.0 or (update is None and rate == 0.0):
            self._zeros += 1
            return True
        if self._zeros and update is not None and rate != 0.0:
            self._longest, self._zeros = max(self._longest, self._zeros), 0
        return False

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        if self._stopped:
            return True
        if "clip_coef" in calm.highest and not self._over:
            return False
        if self._zeros and self._has_ended(chart.lr):
            calm.at_most("lr", math.nextafter(_ENDED * self._peak, 0.0))
            return True  # however many zeros follow
        calm.at_least("lr", _LEAST)
        calm.at_least("update_ratio", _LEAST)
        return "lr" in calm.highest or chart.lr != 0.0

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        self._peak = max(self._peak, stretch.highest("lr", self._peak))
        if not self._zeros or self._stopped:
            return
        columns, first = stretch.columns, chart.rest_rows - len(stretch.steps)
        rates: Iterable[float | None] = columns.get("lr") or repeat(chart.lr)
        updates: Iterable[float | None] = columns.get("update_ratio") or repeat(None)
        rows = zip(stretch.steps, rates, updates, strict=False)
        for row, (step, *changed) in enumerate(rows, first):
            if self._is_zero(*changed) and self._zeros == 1:
                self._since = Moment(row, step)

    def _has_ended(self, rate: float | None) -> bool:
        """Whether a rate is that of a schedule which has ended: then nothing needs to change."""
        return rate is not None and self._peak > 0.0 and rate < _ENDED * self._peak

    def _stop(self, chart: Chart) -> Iterable[Issue]:
        rate = chart.lr
        if chart.broken is not None and self._since.row >= chart.broken.row:
            return  # after a loss that is not finite there is nothing to step by
        if self._has_ended(rate) or self._zeros < _STOPPED_ROWS * chart.options.accumulate:
            return
        self._stopped = self._over = True
        why = "the learning rate is 0" if rate == 0.0 else "the learning rate is not 0"
        if rate is None:
            why = "the learning rate is not logged"
        yield verdict(
            UPDATES_STOPPED,
            chart,
            Finding(
                message=f"Not one parameter changed in {self._zeros} rows from step "
                f"{self._since.step} on (limit {_STOPPED_ROWS}); {why}.",
                onset=self._since,
                confidence=1.0,
                evidence={
                    "rows": Quantity(value=self._zeros, unit="rows", limit=_STOPPED_ROWS),
                    "lr": "not logged" if rate is None else rate,
                },
            ),
        )

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        if self._over or chart.update is None:
            return math.inf
        count, rows = chart.block_count, chart.rows
        if count < _RATE_BLOCKS:
            return _RATE_BLOCKS
        return count + max(0, (max(_AT_ROWS, self._again_at) - rows) // BLOCK_ROWS)

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Judge the size of the steps when the rate has stopped rising."""
        if self._over or chart.update is None or not chart.judged:
            return ()
        if chart.rows < self._again_at:
            return ()
        if chart.block_count == _RATE_BLOCKS:
            self._rate_then = chart.lr or 0.0
        if chart.rows < _AT_ROWS:
            return ()
        warming = chart.lr is not None and chart.lr > 1.05 * self._rate_then
        if warming:
            self._rate_then = chart.lr or 0.0
            return ()
        self._over = True
        if chart.lr is not None and chart.lr < 0.05 * self._peak:
            return ()  # a schedule that has ended is RUN203's business
        per_step = median(chart.updates)
        if per_step >= _NEARLY * _TINY:
            return ()
        improved = chart.start_level - median(chart.recent(20))
        size = abs(chart.start_level)
        stands = improved <= min(max(chart.start_noise, 0.05 * size), _HALVED * size)
        if stands and per_step < _TINY:
            return self._tiny(chart, per_step)
        self._again_at = next((rows for rows in _AGAIN_ROWS if rows > chart.rows), 0)
        self._over = not self._again_at
        return ()

    def _tiny(self, chart: Chart, per_step: float) -> Iterable[Issue]:
        left = median(self._clipped) if self._clipped else 1.0
        rule = OVER_CLIPPING if left < _CLIPPED else UPDATE_TOO_SMALL
        cut = f"clipping leaves {left:.2g} of the gradient (limit {_CLIPPED}), and "
        yield verdict(
            rule,
            chart,
            Finding(
                message=f"{cut if rule is OVER_CLIPPING else ''}a step changes the parameters by "
                f"{per_step:.2g} of their size (limit {_TINY:g}); the loss stands at "
                f"{median(chart.recent(20)):.4g} after {chart.rows} rows.".capitalize(),
                onset=Moment(0, chart.blocks[0].start.step),
                evidence={
                    "update_ratio": Quantity(value=per_step, limit=_TINY),
                    "clip_coef": Quantity(value=left, limit=_CLIPPED),
                    "distance": chart.distance,
                },
            ),
        )

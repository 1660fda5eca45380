"""RUN203: a learning rate that is gone while the run goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import Chart, Moment
from ..rules.step_size import SCHEDULE_ENDED_EARLY
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["ScheduleCheck"]

_GONE = 0.008
"""Share of the peak; two decays by ten leave more, and may be meant."""
_GONE_BY_STEPS = 5e-4
"""The same for a rate that came down by steps and holds still: three decays by ten are meant."""
_STEP = (0.04, 0.6)
"""What one decay leaves of the rate; schedules that run out change by less, or to nothing."""
_LOW_ROWS = 30
_LEFT = 0.2
_PLATEAU_ROWS = 5
_LASTS_ROWS = 3
_DOUBLED = 2.0
"""Times the peak above which a rate must last, and be no spike of a row or two, to be one."""
_RISES = 0.4
"""Share of the peak above which a rate may still rise."""
_HIGHER = 1.9
"""How far the peak may rise then, in rows that are not looked at."""
_MUCH_HIGHER = 20.0
"""The same in the first block, where a rate may grow with the number of the row."""


class ScheduleCheck(Check):
    """Reports a rate below 0.8 % of its peak for long, with much of the run left."""

    rules = (SCHEDULE_ENDED_EARLY,)

    def __init__(self) -> None:
        self._peak = 0.0
        self._high: list[float] = []
        self._before = 0.0
        self._low = 0.0
        self._share = 0.0
        self._since: Moment | None = None
        self._limit = -1.0
        self._told = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        rate = chart.lr
        if rate is None or self._told:
            return ()
        if rate > self._peak or self._high:
            self._rise(rate)
        if rate > self._limit:
            self._since, self._before = None, rate
            return ()
        if self._since is None:
            self._since, self._low = chart.now, rate
            self._share = rate / self._before if self._before else 0.0
        low = chart.now.row - self._since.row + 1
        if low < _LOW_ROWS or low % BATCHED:
            return ()
        return self._judge(chart, rate, low, self._since)

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        if self._told or chart.lr is None:
            return self._told or "lr" not in calm.highest
        if self._high:
            return False
        if self._since is not None:
            return self._narrow_low(chart, calm, chart.lr, self._since)
        higher = _HIGHER if chart.lr > _RISES * self._peak else 1.0
        higher = higher if chart.block_count else _MUCH_HIGHER
        calm.at_most("lr", higher * self._peak)
        lowest = math.nextafter(_GONE * higher * self._peak, math.inf)
        calm.at_least("lr", lowest)
        return "lr" in calm.highest or chart.lr >= lowest

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        if self._told or chart.lr is None or self._since is not None:
            return
        if "lr" in stretch.columns:
            self._before = stretch.columns["lr"][-1]
        highest = stretch.highest("lr", 0.0)
        if highest <= _DOUBLED * self._peak:
            self._peak = max(self._peak, highest)
            self._limit = _GONE * self._peak
            return
        for rate in stretch.columns["lr"]:  # of the first block
            self._rise(rate)

    def _narrow_low(self, chart: Chart, calm: Calm, rate: float, since: Moment) -> bool:
        """Say how many rows of a low rate will be told nothing of."""
        if self._is_a_step(rate):
            calm.at_least("lr", rate)
            calm.at_most("lr", rate)
            return True
        calm.at_most("lr", self._limit)
        last = max(_LOW_ROWS, self._least_rows(chart, since)) - 1
        calm.last_for(last - (chart.now.row - since.row + 1))
        return True

    def _least_rows(self, chart: Chart, since: Moment) -> float:
        """Return after how many rows of a low rate too much of the run is left."""
        planned = chart.options.planned_steps
        if since.row < _PLATEAU_ROWS:
            return math.inf
        if planned:
            return 0.0 if since.step <= (1.0 - _LEFT) * planned else math.inf
        return max(50.0, 0.4 * since.row)

    def _rise(self, rate: float) -> None:
        """Take a rate above the peak for the new one, if it is no spike of a row or two.

        The first one is taken at once: most runs begin at their peak or warm up.
        """
        if not self._peak or rate <= _DOUBLED * self._peak:
            self._high, self._peak = [], max(self._peak, rate)
        else:
            self._high = [*self._high[1 - _LASTS_ROWS :], rate]
            if len(self._high) == _LASTS_ROWS:
                self._high, self._peak = [], max(self._high)
        self._limit = _GONE * self._peak

    def _is_a_step(self, rate: float) -> bool:
        """Whether the rate came down by one decay, and not too far, and has held still since."""
        fewest, most = _STEP
        decayed = fewest < self._share < most and rate == self._low
        return decayed and rate > _GONE_BY_STEPS * self._peak

    def _judge(self, chart: Chart, rate: float, low: int, since: Moment) -> Iterable[Issue]:
        if low < self._least_rows(chart, since) or self._is_a_step(rate):
            return
        planned = chart.options.planned_steps
        left = f"{low} rows have followed {since.row} before"
        if planned:
            left = f"{planned - since.step} of {planned} planned steps were left"
        self._told = True
        yield verdict(
            SCHEDULE_ENDED_EARLY,
            chart,
            Finding(
                message=f"The learning rate is at {rate / self._peak:.2g} of its peak of "
                f"{self._peak:.3g} from step {since.step} on (limit {_GONE:g}); {left}.",
                onset=since,
                evidence={
                    "share_of_peak": Quantity(value=rate / self._peak, limit=_GONE),
                    "peak": self._peak,
                    "low_rows": Quantity(value=low, unit="rows", limit=_LOW_ROWS),
                },
            ),
        )


BATCHED = 5
"""Rows between two judgements of a low rate."""

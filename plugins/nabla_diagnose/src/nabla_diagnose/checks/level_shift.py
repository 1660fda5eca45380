"""RUN104, RUN204 and RUN301 to RUN502: the loss leaves its level from one row to the next.

A jump is a candidate for ten rows. If the loss comes back it was a spike (:mod:`.spikes`); if it
stays, its level shifted; if the learning rate jumped just before, that is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import BLOCK_ROWS, Chart, Moment
from ..robust import median, spread
from ..rules.level import LOSS_LEVEL_SHIFT
from ..rules.step_size import LR_JUMP
from .check import Check, Finding, verdict

__all__ = ["LevelShiftCheck"]

_CONFIRM_ROWS = 10
_NOISES = 8.0
"""Of a single row, to be looked at."""
_LEAST = 6.0
"""Of the level of the rows that follow."""
_BLAMED_ROWS = 40
_DESTRUCTIVE = 0.3
"""An update of this share of the parameters is damage enough, whatever the loss says yet."""
_RESTART_ROWS = 80
"""After the steps have started again, a high loss is that of another run."""
_BACK = 0.5
"""Share of the way back to the start of the run that a shift must undo."""


class LevelShiftCheck(Check):
    """Reports a loss that jumped and stayed, and a learning rate that made it jump."""

    rules = (LOSS_LEVEL_SHIFT, LR_JUMP)

    def __init__(self) -> None:
        self._level = 0.0
        self._noise = 0.0
        self._limit = float("inf")
        self._since: Moment | None = None
        self._rows = 0
        self._told = False
        self._rate = 0.0
        self._peak = 0.0
        self._jump: tuple[Moment, float, float] | None = None

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        if chart.lr is not None and chart.lr != self._rate:
            self._follow_rate(chart, chart.lr)
        loss = chart.loss
        if loss is None or self._told:
            return ()
        if chart.broken is not None:
            return self._broke(chart)
        if self._jump is not None and (chart.update or 0.0) > _DESTRUCTIVE:
            return self._rate_jump(chart, chart.now) if self._is_blamed(chart) else ()
        if self._since is None:
            if loss > self._limit:
                self._since, self._rows = chart.now, 0
            return ()
        self._rows += 1
        blamed = self._is_blamed(chart)
        if self._rows == (4 if blamed else _CONFIRM_ROWS):
            return self._confirm(chart, blamed)
        return ()

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Compare two blocks with the six before them: less noise than single rows have."""
        if self._told or self._since is not None:
            return ()
        self._learn(chart)
        if len(chart.blocks) < 8:
            return ()
        levels = chart.block_losses()
        before, after = levels[-8:-2], levels[-2:]
        level = median(before)
        noise = max(spread(before, level), 0.5 * chart.noise(80), 0.02 * abs(level), 1e-12)
        shifted = min(after) > max(level + _LEAST * noise, max(before))
        if not shifted or not self._matters(chart, level, min(after), noise):
            return ()
        self._told, self._level, self._noise = True, level, noise
        self._rows = 2 * BLOCK_ROWS
        if self._is_blamed(chart):
            return self._rate_jump(chart, chart.blocks[-2].start)
        return (self._shift(chart, chart.blocks[-2].start, min(after)),)

    def _matters(self, chart: Chart, before: float, after: float, noise: float) -> bool:
        """Whether a shift undoes half of the progress, in a run whose loss should fall."""
        undone = after - before > _BACK * (chart.start_level - before)
        rewound = chart.now.row - chart.rewound_at < _RESTART_ROWS
        sharp = before < chart.start_level - 2.0 * chart.start_noise or (
            after > chart.start_level + 3.0 * noise and after > 2.0 * before > 0.0
        )
        single = chart.options.batch_size == 1
        return undone and sharp and chart.judged and not rewound and not single

    def _follow_rate(self, chart: Chart, rate: float) -> None:
        high = rate > max(5.0 * self._rate, 1.5 * self._peak)
        if high and self._rate > 0.0 and chart.rows > 20:
            self._jump = (chart.now, self._rate, rate)
        self._peak = max(self._peak, rate)
        self._rate = rate

    def _learn(self, chart: Chart) -> None:
        """Set the limit from the rows before this one; a rate that jumped keeps it."""
        calm = chart.level
        if calm is None:
            return
        self._level = calm.median
        self._noise = max(calm.spread, calm.roughness, 0.02 * abs(calm.median), 1e-12)
        self._limit = self._level + max(_NOISES * self._noise, 0.2 * chart.progress)

    def _confirm(self, chart: Chart, blamed: bool) -> Iterable[Issue]:
        since, latest = self._since, chart.recent(self._rows)
        self._since = None
        level = median(latest)
        stays = level > self._level + _LEAST * self._noise and min(latest) > self._level
        if since is None or not stays:
            return
        if blamed:
            yield from self._rate_jump(chart, since)
            return
        if self._matters(chart, self._level, level, self._noise):
            self._told = True
            yield self._shift(chart, since, level)

    def _is_blamed(self, chart: Chart) -> bool:
        """Whether the rate has jumped not long ago."""
        return self._jump is not None and chart.now.row - self._jump[0].row <= _BLAMED_ROWS

    def _broke(self, chart: Chart) -> Iterable[Issue]:
        if self._is_blamed(chart):
            yield from self._rate_jump(chart, chart.now)

    def _rate_jump(self, chart: Chart, since: Moment) -> Iterable[Issue]:
        if self._jump is None:
            return
        at, before, after = self._jump
        update = chart.update or 0.0
        what = f"the loss left its level of {self._level:.4g}"
        if update > _DESTRUCTIVE:
            what = f"a step changed the parameters by {update:.0%} (limit {_DESTRUCTIVE:.0%})"
        self._told = True
        yield verdict(
            LR_JUMP,
            chart,
            Finding(
                message=f"The learning rate rose at step {at.step} from {before:.3g} to "
                f"{after:.3g}, {after / before:.3g} times (limit 5), and {what} at step "
                f"{since.step}.",
                onset=at,
                evidence={
                    "ratio": Quantity(value=after / before, limit=5.0),
                    "lr_before": before,
                    "lr_after": after,
                    "level_before": self._level,
                },
            ),
        )

    def _shift(self, chart: Chart, since: Moment, level: float) -> Issue:
        return verdict(
            LOSS_LEVEL_SHIFT,
            chart,
            Finding(
                message=f"The loss jumped at step {since.step} from {self._level:.4g} to "
                f"{level:.4g}, {(level - self._level) / self._noise:.3g} deviations (limit "
                f"{_LEAST:g}), and stayed for {self._rows} rows; the run started at "
                f"{chart.start_level:.4g}.",
                onset=since,
                evidence={
                    "deviations": Quantity(value=(level - self._level) / self._noise, limit=_LEAST),
                    "level_before": self._level,
                    "level_after": level,
                    "start": chart.start_level,
                },
            ),
        )

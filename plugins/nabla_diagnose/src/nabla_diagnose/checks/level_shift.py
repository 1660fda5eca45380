"""RUN104, RUN204 and RUN301 to RUN502: the loss leaves its level from one row to the next.

A jump is a candidate for twenty rows. If the loss comes back it was a spike (:mod:`.spikes`); if it
stays, its level shifted; if the learning rate jumped just before, that is the cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

from ..calm import Calm
from ..chart import BLOCK_ROWS, Chart, Moment
from ..doubts import is_harder_task
from ..level import CALM_ROWS, Level
from ..robust import comes_back, is_averaged, median, spread
from ..rules.level import LOSS_LEVEL_SHIFT
from ..rules.step_size import LR_JUMP
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["LevelShiftCheck"]

_CONFIRM_ROWS = 20
_PATIENT_ROWS = 40
"""Averages over ten rows: two bad batches lift them for twenty, and are no new level."""
_TELLING_ROWS = 200
"""Before a rise: of sixty rows, averages of a few still look like single ones now and then."""
_LOOKS = (10, _CONFIRM_ROWS, _PATIENT_ROWS)
_NOISES = 8.0
"""Of a single row, to be looked at."""
_LEAST = 6.0
"""Of the level of the rows that follow."""
_FLOOR = 0.02
"""Noise, as a share of the level, below which no loss is taken to be."""
_BLAMED_ROWS = 40
_DESTRUCTIVE = 0.3
"""An update of this share of the parameters is damage enough, whatever the loss says yet."""
_RESTART_ROWS = 80
"""After the steps have started again, a high loss is that of another run."""
_BACK = 0.5
"""Share of the way back to the start of the run that a shift must undo."""
_OF_GUESSING = 0.05
"""Share of the loss of guessing below which a rise is nothing, however low the loss was."""
_WHOLLY = 0.8
"""Share with which ten rows are enough; others may be a disturbance that passes."""


class _Shift(NamedTuple):
    """Levels before and after, and the noise before."""

    before: float
    after: float
    noise: float


class LevelShiftCheck(Check):
    """Reports a loss that jumped and stayed, and a learning rate that made it jump."""

    rules = (LOSS_LEVEL_SHIFT, LR_JUMP)
    first_block = CALM_ROWS // BLOCK_ROWS
    looks_back = False

    def __init__(self) -> None:
        self._calm: Level | None = None
        self._progress = 0.0
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
            return self._rate_jump(chart, chart.now, self._level) if self._is_blamed(chart) else ()
        if self._since is None:
            if not any(loss <= ceiling for ceiling in self.ceilings(chart)):
                self._since, self._rows = chart.now, 0
            return ()
        self._rows += 1
        if self._is_blamed(chart):
            return self._confirm(chart, True) if self._rows == 4 else ()
        return self._confirm(chart, False) if self._rows in _LOOKS else ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        if chart.block_count:
            self._narrow_rate(calm)  # before, no rate is taken to jump
        if self._told:
            return True
        if self._jump is not None:
            calm.at_most("update_ratio", _DESTRUCTIVE)
        return self._since is None

    def _narrow_rate(self, calm: Calm) -> None:
        """Hold a rate where it is no jump; one at its peak may double, from no less than a half."""
        if self._rate < self._peak:
            calm.at_most("lr", 1.5 * self._peak)
            return
        calm.at_least("lr", 0.5 * self._peak)
        calm.at_most("lr", 2.0 * self._peak)

    def ceilings(self, chart: Chart) -> Iterator[float]:
        """Yield bounds of a loss that has not left its level, see :class:`Check`.

        A rate that jumped keeps that level.
        """
        calm = self._calm
        if calm is None or self._told:
            yield math.inf
            return
        yield calm.lowest + 0.2 * self._progress
        yield calm.median + max(_NOISES * _FLOOR * abs(calm.median), 0.2 * self._progress)
        yield calm.median + _NOISES * calm.least_noise
        yield calm.median + _NOISES * max(calm.noise, 1e-12)

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        if "lr" in stretch.columns:
            self._peak = max(self._peak, stretch.highest("lr"))
            self._rate = stretch.columns["lr"][-1]

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Compare two blocks with the six before them: less noise than single rows have."""
        if self._told or self._since is not None:
            return ()
        self._calm, self._progress = chart.level, chart.progress
        if not chart.rises or len(chart.blocks) < 8:
            return ()
        levels = chart.block_losses(8)
        before, after = levels[:-2], levels[-2:]
        if min(after) <= max(before):
            return ()
        level = median(before)
        noise = max(spread(before, level), 0.5 * chart.noise(80), _FLOOR * abs(level), 1e-12)
        shifted = min(after) > level + _LEAST * noise
        if not shifted or not self._matters(chart, level, min(after), noise):
            return ()
        if is_averaged(chart.recent(_TELLING_ROWS + 2 * BLOCK_ROWS)[: -2 * BLOCK_ROWS]):
            return ()  # single rows have less noise then, and are followed for longer
        self._told = True
        self._rows = 2 * BLOCK_ROWS
        since = chart.blocks[-2].start
        if self._is_blamed(chart):
            return self._rate_jump(chart, since, level)
        shift = self._shift(chart, since, _Shift(level, min(after), noise))
        return chart.doubts.consider(shift, since.row, chart.now.row)

    def _matters(self, chart: Chart, before: float, after: float, noise: float) -> bool:
        """Whether a shift undoes half of the progress, in a run whose loss should fall."""
        undone = _undone(chart, before, after) > _BACK
        rewound = chart.now.row - chart.rewound_at < _RESTART_ROWS
        sharp = before < chart.start_level - 2.0 * chart.start_noise or (
            after > chart.start_level + 3.0 * noise and after > 2.0 * before > 0.0
        )
        single = chart.options.batch_size == 1
        slight = after - before < _OF_GUESSING * (chart.chance or 0.0)
        return undone and sharp and chart.judged and not rewound and not single and not slight

    def _follow_rate(self, chart: Chart, rate: float) -> None:
        high = rate > max(5.0 * self._rate, 1.5 * self._peak)
        if high and self._rate > 0.0 and chart.rows > 20:
            self._jump = (chart.now, self._rate, rate)
        self._peak = max(self._peak, rate)
        self._rate = rate

    def _confirm(self, chart: Chart, blamed: bool) -> Iterable[Issue]:
        since, calm, latest = self._since, self._calm, chart.recent(min(self._rows, 10))
        if since is None or calm is None:
            return
        noise = max(calm.noise, _FLOOR * abs(calm.median), 1e-12)
        level = median(latest)
        stays = level > calm.median + _LEAST * noise and min(latest) > calm.median
        stays = stays and (blamed or not _comes_back(chart, self._rows, len(latest)))
        if not stays or not (blamed or self._matters(chart, calm.median, level, noise)):
            self._since = None
        elif blamed:
            self._since = None
            yield from self._rate_jump(chart, since, calm.median)
        elif self._rows >= _patience(chart, self._rows, _undone(chart, calm.median, level)):
            self._since, self._told = None, True
            shift = self._shift(chart, since, _Shift(calm.median, level, noise))
            if _is_harder(chart, level, self._rows):
                yield replace(shift, severity=Severity.INFO)
            else:
                yield from chart.doubts.consider(shift, since.row, chart.now.row)

    def _is_blamed(self, chart: Chart) -> bool:
        """Whether the rate has jumped not long ago."""
        return self._jump is not None and chart.now.row - self._jump[0].row <= _BLAMED_ROWS

    def _broke(self, chart: Chart) -> Iterable[Issue]:
        if self._is_blamed(chart):
            yield from self._rate_jump(chart, chart.now, self._level)

    @property
    def _level(self) -> float:
        return 0.0 if self._calm is None else self._calm.median

    def _rate_jump(self, chart: Chart, since: Moment, level: float) -> Iterable[Issue]:
        if self._jump is None:
            return
        at, before, after = self._jump
        update = chart.update or 0.0
        what = f"the loss left its level of {level:.4g}"
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
                    "level_before": level,
                },
            ),
        )

    def _shift(self, chart: Chart, since: Moment, shift: _Shift) -> Issue:
        deviations = (shift.after - shift.before) / shift.noise
        return verdict(
            LOSS_LEVEL_SHIFT,
            chart,
            Finding(
                message=f"The loss jumped at step {since.step} from {shift.before:.4g} to "
                f"{shift.after:.4g}, {deviations:.3g} deviations (limit {_LEAST:g}), and stayed "
                f"for {self._rows} rows; the run started at {chart.start_level:.4g}.",
                onset=since,
                evidence={
                    "deviations": Quantity(value=deviations, limit=_LEAST),
                    "level_before": shift.before,
                    "level_after": shift.after,
                    "start": chart.start_level,
                },
            ),
        )


def _is_harder(chart: Chart, level: float, rows: int) -> bool:
    """Whether a smaller gradient says that the task got harder, and nothing broke."""
    return is_harder_task((chart.start_level, level), tuple(chart.gradients), rows)


def _patience(chart: Chart, since: int, undone: float) -> int:
    """Return how many rows a shift must last, which undid so much of the progress."""
    if is_averaged(chart.recent(_TELLING_ROWS + since)[:-since]):
        return _PATIENT_ROWS
    return 0 if undone > _WHOLLY else _CONFIRM_ROWS


def _comes_back(chart: Chart, since: int, latest: int) -> bool:
    """Whether the latest rows are the trace of one row, ``since`` rows ago, in an average."""
    rows = chart.recent(_TELLING_ROWS + since)
    return comes_back(rows[:-since], rows[-latest:])


def _undone(chart: Chart, before: float, after: float) -> float:
    """Return the share of the progress that a shift undid; infinite where there was none."""
    progress = chart.start_level - before
    return (after - before) / progress if progress > 0.0 else math.inf

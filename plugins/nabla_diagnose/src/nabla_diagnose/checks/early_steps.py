"""RUN201 and RUN207: the first steps are so large that the run falls apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import itemgetter

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import Chart, Moment
from ..robust import median
from ..rules.step_size import LOSS_SCALES_WITH_BATCH, UPDATE_TOO_LARGE
from ..stretch import Stretch
from .check import Check, Finding, verdict
from .summed import is_summed

__all__ = ["EarlyStepsCheck"]

_LARGE = 0.3
"""Share of the parameters' size in one step; good runs stay below a sixth of it."""
_REPLACED = 1.0
"""One step of the size of the parameters themselves counts twice."""
_EARLY_ROWS = 100
_PATIENCE_ROWS = 25
_RECOVERED = 0.75
"""Share of the start at which a run has begun to learn all the same."""
_NOISY = 0.1
_NOISE_BLOCKS = 6


class EarlyStepsCheck(Check):
    """Reports large steps in the first rows, together with a loss that got worse or not better."""

    rules = (UPDATE_TOO_LARGE, LOSS_SCALES_WITH_BATCH)
    first_block = _NOISE_BLOCKS

    def __init__(self) -> None:
        self._large = 0
        self._since = Moment(0, 0)
        self._largest = 0.0
        self._highest = -math.inf
        self._layer: tuple[str, float] = ("", 0.0)

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        update, loss = chart.update, chart.loss
        if update is not None and update > _LARGE:  # one that is NaN has no size
            if not self._large:
                self._since = chart.now
            self._large += 2 if update > _REPLACED else 1
            if math.isfinite(update):
                self._largest = max(self._largest, update)
            if chart.most_changed is not None:
                self._layer = max(self._layer, chart.most_changed, key=itemgetter(1))
        if loss is not None and chart.broken is None:
            self._highest = max(self._highest, loss)
        if self._large and not self.done and self._got_worse(chart):
            return self._report(chart)
        if chart.rows > _EARLY_ROWS or chart.broken is not None:
            self.done = True
        return ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        calm.at_most("update_ratio", _LARGE)
        return not self._large

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        self._highest = max(self._highest, stretch.highest("loss"))
        self.done = self.done or chart.rows > _EARLY_ROWS

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return _NOISE_BLOCKS if chart.block_count < _NOISE_BLOCKS else math.inf

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Report a run that makes steps of a tenth of its parameters and gains nothing."""
        if chart.block_count != _NOISE_BLOCKS or "RUN201" in chart.found or not chart.judged:
            return ()
        if is_summed(chart) and self._was_thrown_up(chart):
            return (self._summed(chart),)
        if len(chart.updates) < 40 or chart.shrinking or chart.first[0] <= 0.0:
            return ()
        per_step = median(chart.updates)
        start = chart.start_level if chart.chance is None else min(chart.start_level, chart.chance)
        if per_step <= _NOISY or median(chart.recent(20)) < 0.95 * start:
            return ()
        self._since, self._largest = Moment(0, chart.blocks[0].start.step), per_step
        return self._report(chart, _NOISY)

    def _got_worse(self, chart: Chart) -> bool:
        if not chart.first:
            return False
        first = chart.first[0]
        worse = self._highest > first + max(2.0 * abs(first), 5.0 * _calm_noise(chart))
        if self._large < 2:
            return False
        if worse or chart.broken is not None:
            return True
        patience = _PATIENCE_ROWS if self._large >= 5 else 2 * _PATIENCE_ROWS
        if chart.rows - self._since.row < patience or not chart.judged or chart.shrinking:
            return False
        level = median(chart.recent(10))
        recovers = level < _RECOVERED * chart.start_level  # the first loss may be a lucky one
        return level > first - 0.05 * abs(first) and not recovers

    def _was_thrown_up(self, chart: Chart) -> bool:
        """Whether the loss left its start upwards, and the run has learnt nothing since."""
        guessing = (chart.chance or 0.0) * chart.options.batch_size
        level = median(chart.recent(20))
        return self._highest > 3.0 * max(chart.first[0], guessing) and level > _RECOVERED * guessing

    def _report(self, chart: Chart, limit: float = _LARGE) -> Iterable[Issue]:
        self.done = True
        chart.found.add(UPDATE_TOO_LARGE.id)  # for the checks that are asked next
        if is_summed(chart):
            yield self._summed(chart)
        layer, change = self._layer
        most = f"; {layer} changed most, by {change:.3g}" if change > limit else ""
        yield verdict(
            UPDATE_TOO_LARGE,
            chart,
            Finding(
                message=f"Steps changed the parameters by up to {self._largest:.3g} times their "
                f"size (limit {limit}) from step {self._since.step} on, and the loss went from "
                f"{chart.first[0]:.4g} up to {self._highest:.4g}{most}.",
                onset=self._since,
                where=layer if change > limit else None,
                evidence={
                    "update_ratio": Quantity(value=self._largest, limit=limit),
                    "first_loss": chart.first[0],
                    "highest_loss": self._highest,
                    "large_steps": self._large,
                },
            ),
        )

    @staticmethod
    def _summed(chart: Chart) -> Issue:
        chance, samples = chart.chance or 0.0, chart.options.batch_size
        return verdict(
            LOSS_SCALES_WITH_BATCH,
            chart,
            Finding(
                message=f"The first loss, {chart.first[0]:.4g}, is {chart.first[0] / chance:.3g} "
                f"times that of guessing ({chance:.3g}), as a sum over {samples} samples is.",
                onset=Moment(0, chart.step),
                evidence={
                    "first_loss": Quantity(value=chart.first[0], limit=chance * samples),
                    "guessing": chance,
                    "batch_size": samples,
                },
            ),
        )


def _calm_noise(chart: Chart) -> float:
    """Noise of the first losses: the least of their differences, at most the first loss itself."""
    head = chart.first[:4]
    steps = [abs(a - b) for a, b in zip(head, head[1:], strict=False)]
    return min(*steps, abs(head[0]), math.inf)

"""RUN409: a first loss far above that of guessing."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..robust import median
from ..rules.layers import INITIAL_LOSS_TOO_HIGH
from .check import Finding, LayerCheck, verdict

__all__ = ["FirstLossCheck"]

_TIMES = 3.5
_ROWS = 3
_SURE_LOGITS = 2.0
"""Spread of the outputs of the last layer from which an untrained model is sure of its answers."""


class FirstLossCheck(LayerCheck):
    """Compares the first losses with that of guessing, where guessing has one.

    A sum over the batch is as high; then the spread of the outputs decides, if it is measured.
    """

    rules = (INITIAL_LOSS_TOO_HIGH,)

    def __init__(self) -> None:
        self._sure = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        self.done = chart.rows >= _ROWS
        if chart.rows != _ROWS or chart.chance is None or len(chart.first) < _ROWS:
            return ()
        return self._judge(chart, chart.chance)

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`; after a first loss below the limit nothing is said."""
        chance = chart.chance
        return chance is None or chart.rows >= _ROWS or chart.first[0] <= _limit(chance)

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """Learn at the first measurement how sure the untrained model is."""
        if table.count > 1:
            return ()
        spreads = table.column("activation_std")
        last = next((name for name in reversed(table.weighted) if name in spreads), None)
        self._sure = last is not None and spreads[last] > _SURE_LOGITS
        return ()

    def _judge(self, chart: Chart, chance: float) -> Iterable[Issue]:
        first, level = chart.first[0], median(chart.first)
        limit = _limit(chance)
        samples = chart.options.batch_size
        summed = samples >= 8 and 0.8 < first / (chance * samples) < 1.3
        risen = level > 1.5 * first  # the steps did it, not the initialisation
        high = first if self._sure else min(first, level)  # a sure model may learn at once
        if high <= limit or (summed and not self._sure) or risen:
            return
        yield verdict(
            INITIAL_LOSS_TOO_HIGH,
            chart,
            Finding(
                message=f"The first loss is {first:.4g}, {first / chance:.3g} times that of "
                f"guessing, {chance:.4g} (limit {limit:.3g}).",
                onset=Moment(0, chart.step),
                evidence={
                    "first_loss": Quantity(value=first, limit=limit),
                    "guessing": chance,
                },
            ),
        )


def _limit(chance: float) -> float:
    return _TIMES * chance + 1.0

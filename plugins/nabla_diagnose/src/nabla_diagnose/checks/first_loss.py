"""RUN409 and RUN109: a first loss far above that of guessing, or below zero."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import BLOCK_ROWS, Chart, Moment
from ..layer_table import LayerTable
from ..robust import median
from ..rules.layers import INITIAL_LOSS_TOO_HIGH
from ..rules.level import WRONG_LOSS_SIGN
from .check import Finding, LayerCheck, verdict
from .summed import is_summed

__all__ = ["FirstLossCheck"]

_TIMES = 3.5
_ROWS = 3
_WILD = 100.0
"""Times the limit: one row is enough, and often there is no other that is finite."""
_ALONE = 1.25
_TURNED = 0.5
"""Share of the loss of guessing by which a loss is below zero whose sign was turned."""
_STILL = 0.02
"""Sum of the updates below which the first ten losses are all those of the first parameters."""
_SURE_LOGITS = 2.0
"""Spread of the outputs of the last layer from which an untrained model is sure of its answers."""


class FirstLossCheck(LayerCheck):
    """Compares the first losses with that of guessing, where guessing has one.

    A sum over the batch is as high; then the spread of the outputs decides, if it is measured.
    Losses of a few samples differ so much that three may not tell; where the steps hardly moved the
    parameters, ten rows do.
    """

    rules = (INITIAL_LOSS_TOO_HIGH, WRONG_LOSS_SIGN)

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        chance, rows = chart.chance, len(chart.first)
        self.done = chart.rows >= BLOCK_ROWS or INITIAL_LOSS_TOO_HIGH.id in chart.found
        if chance is None or not rows or INITIAL_LOSS_TOO_HIGH.id in chart.found:
            return ()
        if chart.rows == 1 and chart.first[0] > _WILD * _limit(chance):
            self.done = True
            return self._judge(chart, chance)
        if chart.rows == rows == BLOCK_ROWS:
            if chart.judged and max(chart.first) < -_TURNED * chance:
                return (self._turned(chart, chance),)
            return self._judge_ten(chart, chance)
        return self._judge(chart, chance) if chart.rows == rows == _ROWS else ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`; after a first loss below the limit nothing is said."""
        chance = chart.chance  # the tenth row is looked at in any case
        return chance is None or chart.rows >= _ROWS or chart.first[0] <= _limit(chance)

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """Learn at the first measurement how sure the untrained model is."""
        if table.count > 1:
            return ()
        spreads = table.column("activation_std")
        last = next((name for name in reversed(table.weighted) if name in spreads), None)
        chart.first_spread = None if last is None else spreads[last]
        return ()

    def _judge(self, chart: Chart, chance: float) -> Iterable[Issue]:
        first, level = chart.first[0], median(chart.first)
        limit = _limit(chance)
        sure = (chart.first_spread or 0.0) > _SURE_LOGITS
        risen = level > 1.5 * first  # the steps did it, not the initialisation
        # a sure model may learn at once; then one batch alone must show it
        high = max(first / _ALONE, min(first, level)) if sure else min(first, level)
        if high <= limit or (is_summed(chart) and not sure) or risen:
            return ()
        return (self._report(chart, f"The first loss is {first:.4g}", first, chance),)

    def _judge_ten(self, chart: Chart, chance: float) -> Iterable[Issue]:
        level = median(chart.first)
        moved = "update_ratio" not in chart.seen or chart.distance > _STILL
        if moved or level <= _limit(chance) or is_summed(chart):
            return ()
        return (
            self._report(
                chart, f"The median of the first ten losses is {level:.4g}", level, chance
            ),
        )

    @staticmethod
    def _turned(chart: Chart, chance: float) -> Issue:
        highest = max(chart.first)
        return verdict(
            WRONG_LOSS_SIGN,
            chart,
            Finding(
                message=f"The first {BLOCK_ROWS} losses are all below zero, at most {highest:.4g} "
                f"(limit {-_TURNED * chance:.4g}), where no cross-entropy of an untrained model "
                f"can be: guessing gives {chance:.4g}.",
                onset=Moment(0, chart.blocks[0].start.step),
                confidence=0.95,
                evidence={
                    "highest": Quantity(value=highest, limit=-_TURNED * chance),
                    "guessing": chance,
                },
            ),
        )

    @staticmethod
    def _report(chart: Chart, what: str, loss: float, chance: float) -> Issue:
        limit = _limit(chance)
        return verdict(
            INITIAL_LOSS_TOO_HIGH,
            chart,
            Finding(
                message=f"{what}, {loss / chance:.3g} times that of guessing, {chance:.4g} (limit "
                f"{limit:.3g}).",
                onset=Moment(0, chart.step),
                evidence={
                    "first_loss": Quantity(value=loss, limit=limit),
                    "guessing": chance,
                },
            ),
        )


def _limit(chance: float) -> float:
    return _TIMES * chance + 1.0

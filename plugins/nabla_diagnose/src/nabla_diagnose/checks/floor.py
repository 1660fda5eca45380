"""RUN112: a loss that rests on the floor of a second activation."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..robust import median
from ..rules.trend import LOSS_FLOOR
from ..stretch import Stretch
from .check import Finding, LayerCheck, verdict

__all__ = ["FloorCheck"]

_BLOCKS = 15
_EVERY = 5
_NEAR = 0.03
_BELOW = 2e-5
_SURE_LOGITS = 4.0
"""Spread of outputs that would make the loss of logits next to nothing, or far above guessing."""
_IN_A_ROW = 5
_GAINED = 0.1
"""Share of guessing: a model that is sure of something has learnt something."""
_SAME = frozenset({"RUN401", "RUN402", "RUN404"})
"""Behind these, outputs may be wide and the same for all classes."""
_LEAST_ROWS = 100


class FloorCheck(LayerCheck):
    """Reports a loss that came down onto the floor and never went below it in a single row.

    Probabilities given to a cross-entropy of logits lie between 0 and 1, so the loss of ``C``
    classes stays above ``ln(e + C - 1) - 1``; for two outcomes above ``ln(1 + 1 / e)``, where that
    is averaged over targets of both kinds.
    """

    rules = (LOSS_FLOOR,)
    first_block = _BLOCKS

    def __init__(self) -> None:
        self._least = math.inf
        self._highest = -math.inf
        self._sure = 0
        self._told = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss = chart.loss
        self.done = chart.chance is None
        if loss is not None:
            self._least, self._highest = min(self._least, loss), max(self._highest, loss)
        return ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        return True

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        self._least = min(self._least, min(stretch.columns["loss"]))
        self._highest = max(self._highest, stretch.highest("loss"))

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return math.inf if self._told else (chart.block_count // _EVERY + 1) * _EVERY

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        if self._told or chart.block_count < _BLOCKS or chart.block_count % _EVERY:
            return
        floor, chance = self._floor(chart), chart.chance
        if floor is None or chance is None:
            return
        level = median(chart.block_losses()[-5:])
        height = (level - floor) / (chance - floor)
        started = abs(chart.start_level - chance) < 0.2 * (chance - floor)
        if self._least < floor * (1.0 - _BELOW) or height > _NEAR or not started:
            return
        self._told = True
        yield verdict(
            LOSS_FLOOR,
            chart,
            Finding(
                message=f"The loss came to rest at {level:.4g}, within {max(height, 0.0):.2g} of "
                f"the way from guessing to {floor:.4g}, the floor of a doubled activation (limit "
                f"{_NEAR}), and never fell below it.",
                onset=chart.blocks[-5].start,
                confidence=0.7,
                evidence={
                    "height": Quantity(value=height, limit=_NEAR),
                    "floor": floor,
                    "least": self._least,
                },
            ),
        )

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """Report outputs as wide as those of a sure model, whose loss never shows it.

        As logits they would give a loss below the floor where they are right, or far above guessing
        where they are not; as inputs of a second activation they can do neither.
        """
        floor, chance = self._range(chart)
        if self._told or floor is None or chart.rows < _LEAST_ROWS or not chart.judged:
            return
        spreads = table.column("activation_std")
        last = next((name for name in reversed(table.weighted) if name in spreads), "")
        inside = floor < self._least and self._highest < floor + 1.0
        self._sure = self._sure + 1 if inside and spreads.get(last, 0.0) > _SURE_LOGITS else 0
        start = max(chart.start_level, min(self._highest, chance))  # ten rows may have learnt much
        gained = start - chart.blocks[-1].loss if chart.block_count else 0.0
        if self._sure < _IN_A_ROW or gained < _GAINED * chance or chart.found & _SAME:
            return
        self._told = True
        yield self._wide(chart, last, spreads[last], floor)

    def _wide(self, chart: Chart, layer: str, spread: float, floor: float) -> Issue:
        return verdict(
            LOSS_FLOOR,
            chart,
            Finding(
                message=f"The outputs of {layer} have a spread of {spread:.3g} (limit "
                f"{_SURE_LOGITS:g}), {_IN_A_ROW} measurements in a row, but the loss stayed "
                f"between {self._least:.4g} and {self._highest:.4g}, where probabilities keep it "
                f"({floor:.4g} to {floor + 1.0:.4g}).",
                onset=Moment(0, 0),
                where=layer,
                confidence=0.8,
                evidence={
                    "spread": Quantity(value=spread, limit=_SURE_LOGITS),
                    "floor": floor,
                    "least": self._least,
                    "highest": self._highest,
                },
            ),
        )

    def _range(self, chart: Chart) -> tuple[float | None, float]:
        """Return the least loss of a doubled activation, and the loss of guessing."""
        if chart.options.loss == "bce_with_logits":
            return math.log1p(1.0 / math.e), math.log(2.0)
        return self._floor(chart), chart.chance or 0.0

    @staticmethod
    def _floor(chart: Chart) -> float | None:
        options = chart.options
        if options.loss == "cross_entropy" and options.classes > 1:
            return math.log(math.e + options.classes - 1) - 1.0
        return None

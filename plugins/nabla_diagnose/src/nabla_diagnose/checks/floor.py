"""RUN112: a loss that rests on the floor of a second activation."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import Chart
from ..robust import median
from ..rules.trend import LOSS_FLOOR
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["FloorCheck"]

_BLOCKS = 15
_EVERY = 5
_NEAR = 0.03
_BELOW = 2e-5


class FloorCheck(Check):
    """Reports a loss that came down onto the floor and never went below it in a single row.

    Probabilities given to a cross-entropy of logits lie between 0 and 1, so the loss of ``C``
    classes stays above ``ln(e + C - 1) - 1``; for two outcomes above ``ln(1 + 1 / e)``, where that
    is averaged over targets of both kinds.
    """

    rules = (LOSS_FLOOR,)

    def __init__(self) -> None:
        self._least = math.inf
        self._told = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss = chart.loss
        self.done = chart.chance is None
        if loss is not None and loss < self._least:
            self._least = loss
        return ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        return True

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        self._least = min(self._least, min(stretch.columns["loss"]))

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

    @staticmethod
    def _floor(chart: Chart) -> float | None:
        options = chart.options
        if options.loss == "cross_entropy" and options.classes > 1:
            return math.log(math.e + options.classes - 1) - 1.0
        return None

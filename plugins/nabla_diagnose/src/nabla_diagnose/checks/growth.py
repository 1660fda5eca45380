"""RUN304: gradients that are added up from step to step."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart, Moment
from ..robust import median, roughness
from ..rules.gradients import GRADIENT_GROWING_LINEARLY
from .check import Check, Finding, verdict

__all__ = ["GrowthCheck"]

_AT_BLOCKS = 4
_SMOOTH = 0.045
"""Noise of the logarithm of a norm; a fresh gradient of a batch varies twice as much."""
_VERY_SMOOTH = 0.025
_GROWTH = 1.4
_AT_ONCE = 1.2
"""Growth within six rows: even gradients of unrelated directions add up to more than that."""
_PLAIN_GROWTH = 5.0
"""So much in forty rows that the loss need not vary more than the norm."""


class GrowthCheck(Check):
    """Reports a gradient norm that grows from the first row on, far smoother than the loss.

    A sum over all steps so far changes little from one row to the next, while the loss of each new
    batch varies: that separates it from a run whose batches are all alike.
    """

    rules = (GRADIENT_GROWING_LINEARLY,)

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        self.done = chart.block_count >= _AT_BLOCKS
        if chart.block_count != _AT_BLOCKS or len(chart.gradients) < 10 * _AT_BLOCKS:
            return
        if chart.found & {"RUN206", "RUN201"} or not chart.judged:
            return
        norms = list(chart.gradients)
        losses = chart.recent(len(norms))
        smooth = roughness([math.log(norm) for norm in norms])
        noise = roughness(losses) / (abs(median(losses)) or 1e-12)
        growth = median(norms[-5:]) / median(norms[:3])
        apart = 1.2 if smooth < _VERY_SMOOTH else 3.0
        if growth > _PLAIN_GROWTH:
            apart = 0.5
        if smooth > _SMOOTH or growth < _GROWTH or noise < apart * smooth or not _adds_up(norms):
            return
        yield verdict(
            GRADIENT_GROWING_LINEARLY,
            chart,
            Finding(
                message=f"The gradient norm grew {growth:.3g} times in {len(norms)} rows (limit "
                f"{_GROWTH}), varying by {smooth:.2g} from row to row while the loss varies by "
                f"{noise:.2g}: it is a sum over steps.",
                onset=Moment(0, chart.blocks[0].start.step),
                evidence={
                    "growth": Quantity(value=growth, limit=_GROWTH),
                    "gradient_noise": Quantity(value=smooth, limit=_SMOOTH),
                    "loss_noise": noise,
                },
            ),
        )


def _adds_up(norms: list[float]) -> bool:
    """Whether norms grow as those of a sum do: at once, and on and on."""
    at_once = median(norms[2:6]) > _AT_ONCE * norms[0]
    return at_once and median(norms[20:30]) > median(norms[5:15]) > median(norms[:3])

"""RUN304: gradients that are added up from step to step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

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
_AGAIN_BLOCKS = 4
_LAST_BLOCK = 40
_VERY_SMOOTH = 0.025
_AT_ONCE = 1.2
"""Growth within six rows: even gradients of unrelated directions add up to more than that."""
_PLAIN_GROWTH = 5.0
"""So much in forty rows that the loss need not vary more than the norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Of a norm.

    Attributes:
        smooth: noise of its logarithm at most.
        growth: since the first rows, at least.
        is_young: whether the sum is short, so that its noise is that of a few gradients.
    """

    smooth: float
    growth: float
    is_young: bool

    def apart(self, smooth: float, growth: float) -> float:
        """Return how many times as noisy the loss must be at least."""
        if not self.is_young:
            return 10.0
        if growth > _PLAIN_GROWTH:
            return 0.5
        return 1.2 if smooth < _VERY_SMOOTH else 3.0


_YOUNG = _Limits(smooth=0.045, growth=1.4, is_young=True)
"""A fresh gradient of a batch varies twice as much."""
_LATER = _Limits(smooth=0.02, growth=2.0, is_young=False)
"""Fresh gradients vary about as much as the loss; a sum of a hundred does by a hundredth of it."""


class GrowthCheck(Check):
    """Reports a gradient norm that grows from the first row on, far smoother than the loss.

    A sum over all steps so far changes little from one row to the next, while the loss of each new
    batch varies: that separates it from a run whose batches are all alike.
    """

    rules = (GRADIENT_GROWING_LINEARLY,)
    first_block = _AT_BLOCKS

    def __init__(self) -> None:
        self._at_first = 0.0

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return max(_AT_BLOCKS, (chart.block_count // _AGAIN_BLOCKS + 1) * _AGAIN_BLOCKS)

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        count = chart.block_count
        if count % _AGAIN_BLOCKS:
            return
        self.done = count >= _LAST_BLOCK
        if len(chart.gradients) < 10 * _AT_BLOCKS or not chart.judged:
            return
        norms = list(chart.gradients)
        if count == _AT_BLOCKS and _adds_up(norms):
            self._at_first = median(norms[:3])
        self.done = self.done or not self._at_first
        if not self._at_first or chart.found & {"RUN206", "RUN201", "RUN304"}:
            return
        limits = _LATER if count > _AT_BLOCKS else _YOUNG
        growth = median(norms[-5:]) / self._at_first
        if growth < limits.growth:
            return
        smooth = roughness([math.log(norm) for norm in norms])
        losses = chart.recent(len(norms))
        noise = roughness(losses) / (abs(median(losses)) or 1e-12)
        if smooth > limits.smooth:
            return
        if noise >= limits.apart(smooth, growth) * smooth:
            yield self._report(chart, growth, (smooth, noise), limits)

    @staticmethod
    def _report(chart: Chart, growth: float, noises: tuple[float, float], limits: _Limits) -> Issue:
        smooth, noise = noises
        return verdict(
            GRADIENT_GROWING_LINEARLY,
            chart,
            Finding(
                message=f"The gradient norm grew {growth:.3g} times in {chart.rows} rows (limit "
                f"{limits.growth}), varying by {smooth:.2g} from row to row while the loss varies "
                f"by {noise:.2g}: it is a sum over steps.",
                onset=Moment(0, chart.blocks[0].start.step),
                evidence={
                    "growth": Quantity(value=growth, limit=limits.growth),
                    "gradient_noise": Quantity(value=smooth, limit=limits.smooth),
                    "loss_noise": noise,
                },
            ),
        )


def _adds_up(norms: list[float]) -> bool:
    """Whether norms grow as those of a sum do: at once, and on and on."""
    at_once = median(norms[2:6]) > _AT_ONCE * norms[0]
    return at_once and median(norms[20:30]) > median(norms[5:15]) > median(norms[:3])

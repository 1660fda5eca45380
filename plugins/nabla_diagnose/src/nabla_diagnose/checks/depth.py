"""RUN302 and RUN303: gradients that shrink or grow from layer to layer."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.rule import Rule

from ..chart import Chart
from ..layer_table import LayerTable
from ..robust import median
from ..rules.gradients import EXPLODING_GRADIENTS, VANISHING_GRADIENTS
from .check import Finding, LayerCheck, verdict
from .streaks import Streaks

__all__ = ["DepthCheck"]

_RATIO = 1e4
_STEADY_RATIO = 1.5e3
_STEADY_LAYERS = 7
"""Of so many layers or more each has a smaller gradient than the next: good runs stay below 150."""
_LAYERS = 4
_IN_A_ROW = 3
_SURE_RATIO = 1e6
_SURE_IN_A_ROW = 2
_GROWN = 2.0
"""Weights of so many times their first size vanish a gradient that was alright."""
_ALIKE = 0.6
"""Share of the neighbouring layers whose gradients must change in the same direction."""


class DepthCheck(LayerCheck):
    """Compares the gradients of the first and the last layers, each against its weights."""

    rules = (VANISHING_GRADIENTS, EXPLODING_GRADIENTS)

    def __init__(self) -> None:
        self._streaks = Streaks()
        self._told: set[str] = set()

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """See :class:`LayerCheck`."""
        found = [
            (layer, value)
            for layer, value in table.relative_gradients().items()
            if 0.0 < value < math.inf
        ]
        if len(found) < _LAYERS:
            return
        if _has_grown(table):
            return
        slopes = [b > a for (_, a), (_, b) in zip(found, found[1:], strict=False)]
        falling = sum(slopes) >= _ALIKE * len(slopes)
        rising = len(slopes) - sum(slopes) >= _ALIKE * len(slopes)
        steady = all(slopes) and len(found) >= _STEADY_LAYERS
        limit = _STEADY_RATIO if steady else _RATIO
        (first, low), (last, high) = found[0], found[-1]
        for rule, holds, where, ratio in (
            (VANISHING_GRADIENTS, falling and high > limit * low, first, high / low),
            (EXPLODING_GRADIENTS, rising and low > _RATIO * high, first, low / high),
        ):
            length = self._streaks.count(rule.id, holds, table.at)
            enough = _SURE_IN_A_ROW if ratio > _SURE_RATIO else _IN_A_ROW
            if length >= enough and rule.id not in self._told:
                self._told.add(rule.id)
                shown = limit if rule is VANISHING_GRADIENTS else _RATIO
                yield self._report(
                    chart, rule, where, Quantity(value=ratio, limit=shown), (last, length)
                )

    def _report(
        self, chart: Chart, rule: Rule, where: str, ratio: Quantity, seen: tuple[str, int]
    ) -> Issue:
        last, length = seen
        since = self._streaks.since(rule.id)
        side = "below" if rule is VANISHING_GRADIENTS else "above"
        return verdict(
            rule,
            chart,
            Finding(
                message=f"The gradient of {where}, measured against its weights, is "
                f"{ratio.value:.3g} times {side} that of {last} (limit {ratio.limit:g}), {length} "
                f"measurements in a row from step {since.step} on.",
                onset=since,
                where=where,
                evidence={"ratio": ratio, "compared_with": last},
            ),
        )


def _has_grown(table: LayerTable) -> bool:
    """Whether the weights are no longer those that the gradient met at first."""
    norms, first = table.column("weight_norm"), table.first_norms
    ratios = [norm / first[layer] for layer, norm in norms.items() if first[layer] > 0.0]
    return bool(ratios) and median(ratios) > _GROWN

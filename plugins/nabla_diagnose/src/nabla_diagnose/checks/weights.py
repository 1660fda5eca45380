"""RUN407 and RUN408: weights that run away or that vanish."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart
from ..layer_table import LayerTable
from ..robust import median
from ..rules.layers import WEIGHT_COLLAPSE, WEIGHT_GROWTH
from .check import Finding, LayerCheck, verdict

__all__ = ["WeightsCheck"]

_GROWN = 30.0
_SHRUNK = 0.05
_PULLED = 0.3
"""Enough where the steps did little else than to shrink the weights, and the loss stands still."""
_RADIAL = 3.0
"""Times the way to zero that steps may have covered in all to have done little else."""


class WeightsCheck(LayerCheck):
    """Follows the norms of all weights."""

    rules = (WEIGHT_GROWTH, WEIGHT_COLLAPSE)

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._grown: dict[str, float] = {}

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """See :class:`LayerCheck`."""
        norms = table.column("weight_norm")
        if not norms:
            return
        pairs = [(n, f) for n, f in ((norms[k], table.first_norms[k]) for k in norms) if f > 0.0]
        share = median([norm / first for norm, first in pairs]) if pairs else 1.0
        chart.shrinking = share < 0.9 and _is_pulled(chart, share)
        idle = chart.shrinking and share < _PULLED and _stands(chart)
        limit = _PULLED if idle else _SHRUNK
        shrunk = sum(norm < limit * first for norm, first in pairs)
        if pairs and 2 * shrunk >= len(pairs) >= 2 and "collapse" not in self._told:
            self._told.add("collapse")
            yield self._collapse(chart, table, (shrunk, len(pairs)), limit)
        yield from self._growth(chart, table)

    @staticmethod
    def _collapse(chart: Chart, table: LayerTable, counts: tuple[int, int], limit: float) -> Issue:
        shrunk, count = counts
        norms = table.column("weight_norm")
        layer = min(norms, key=lambda name: norms[name] / (table.first_norms[name] or 1e300))
        share = norms[layer] / table.first_norms[layer]
        return verdict(
            WEIGHT_COLLAPSE,
            chart,
            Finding(
                message=f"The weights of {shrunk} of {count} layers are below {limit:g} of their "
                f"first size at step {chart.step}; those of {layer} are at {share:.2g}.",
                onset=table.at,
                where=layer,
                evidence={
                    "layers": Quantity(value=shrunk, unit="layers", limit=count / 2),
                    "share": Quantity(value=share, limit=limit),
                },
            ),
        )

    def _growth(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        for layer, norm in table.column("weight_norm").items():
            first = table.first_norms[layer]
            if first <= 0.0 or norm <= _GROWN * first or "growth" in self._told:
                continue
            before = self._grown.get(layer)
            self._grown[layer] = norm
            better = chart.block_count and chart.blocks[-1].loss < chart.start_level
            if before is None or norm <= 1.05 * before or better:
                continue
            self._told.add("growth")
            yield verdict(
                WEIGHT_GROWTH,
                chart,
                Finding(
                    message=f"The weights of {layer} grew to {norm / first:.3g} times their first "
                    f"size (limit {_GROWN:g}) and go on growing at step {chart.step}.",
                    onset=table.at,
                    where=layer,
                    evidence={"ratio": Quantity(value=norm / first, limit=_GROWN)},
                ),
            )


def _is_pulled(chart: Chart, share: float) -> bool:
    """Whether most of what the steps did was to shrink the weights to a share of their size.

    Steps of unknown size may have done so.
    """
    return share <= 0.0 or chart.distance < _RADIAL * math.log(1.0 / share)


def _stands(chart: Chart) -> bool:
    """Whether the loss has gained less than a tenth of its start."""
    if not chart.block_count or not chart.judged or "update_ratio" not in chart.seen:
        return False
    return chart.blocks[-1].loss > chart.start_level - 0.1 * abs(chart.start_level)

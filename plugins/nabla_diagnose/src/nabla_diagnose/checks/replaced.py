"""RUN201 after sixty rows: what steps that replace the parameters leave behind."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..robust import median
from ..rules.step_size import UPDATE_TOO_LARGE
from .check import Finding, LayerCheck, verdict

__all__ = ["ReplacedCheck"]

_AT_BLOCKS = 6
_REPLACED = 0.7
"""Share of its own size by which the first step changed a layer; a fifth was seen in good runs."""
_GAINED = 0.8
"""Share of the start, or of guessing, from which on a run has learnt all the same."""
_WORSE = 1.5
"""Share of the start from which a run got worse."""
_WANDERS = 0.04
"""Step by step, share of the parameters' size that is too much for a run that got worse."""


class ReplacedCheck(LayerCheck):
    """Judges what the first step did to the layers, and what later ones did to the loss.

    The norm of all parameters hides it where a few large layers, such as embeddings, hardly move.
    """

    rules = (UPDATE_TOO_LARGE,)
    first_block = _AT_BLOCKS

    def __init__(self) -> None:
        self._first = 0.0
        self._at = Moment(0, 0)
        self._layer: str | None = None

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """Learn at the first measurement how much of each layer the first step changed."""
        if table.count > 1:
            return ()
        norms = table.column("weight_norm")
        changes = [
            change
            for layer, change in table.column("update_ratio").items()
            if norms.get(layer, 0.0) > 0.0 and math.isfinite(change)
        ]
        if len(changes) > 1 and chart.now.row < 2:
            self._first, self._at = median(changes), chart.now
            self._layer = None if chart.most_changed is None else chart.most_changed[0]
        return ()

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return _AT_BLOCKS if chart.block_count < _AT_BLOCKS else math.inf

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        self.done = chart.block_count >= _AT_BLOCKS
        if chart.block_count != _AT_BLOCKS or "RUN201" in chart.found or not chart.judged:
            return
        start = chart.start_level if chart.chance is None else min(chart.start_level, chart.chance)
        if start <= 0.0 or chart.shrinking:
            return
        level = median(chart.recent(20))
        if self._first > _REPLACED and level > _GAINED * start:
            yield self._replaced(chart, level)
        elif level > _WORSE * chart.start_level and len(chart.updates) >= 40:
            per_step = median(chart.updates)
            if per_step > _WANDERS:
                yield self._wandering(chart, per_step, level)

    def _replaced(self, chart: Chart, level: float) -> Issue:
        return verdict(
            UPDATE_TOO_LARGE,
            chart,
            Finding(
                message=f"The first step changed the layers by {self._first:.3g} of their size "
                f"(median, limit {_REPLACED}), and after {chart.rows} rows the loss stands at "
                f"{level:.4g}; it started at {chart.start_level:.4g}.",
                onset=self._at,
                where=self._layer,
                evidence={
                    "update_ratio": Quantity(value=self._first, limit=_REPLACED),
                    "loss": level,
                    "start": chart.start_level,
                },
            ),
        )

    @staticmethod
    def _wandering(chart: Chart, per_step: float, level: float) -> Issue:
        limit = _WORSE * chart.start_level
        return verdict(
            UPDATE_TOO_LARGE,
            chart,
            Finding(
                message=f"Each step changes the parameters by {per_step:.2g} of their size (limit "
                f"{_WANDERS} where the loss rises), and after {chart.rows} rows the loss stands at "
                f"{level:.4g} (limit {limit:.4g}).",
                onset=Moment(0, chart.blocks[0].start.step),
                evidence={
                    "update_ratio": Quantity(value=per_step, limit=_WANDERS),
                    "loss": Quantity(value=level, limit=limit),
                },
            ),
        )

"""RUN206 for layers: some never change while others do."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

from ..chart import Chart
from ..layer_table import LayerTable
from ..rules.step_size import UPDATES_STOPPED
from .check import Finding, LayerCheck, verdict
from .streaks import Streaks

__all__ = ["StillLayersCheck"]

_IN_A_ROW = 3
_REPORTED = 3
_UNDERFLOW = 1e-5
_DEAD = 0.98


class StillLayersCheck(LayerCheck):
    """Reports layers whose weights stay exactly as they are, the most upstream first."""

    rules = (UPDATES_STOPPED,)

    def __init__(self) -> None:
        self._streaks = Streaks()
        self._told: set[str] = set()

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """See :class:`LayerCheck`."""
        updates = table.column("update_ratio")
        if len(self._told) >= _REPORTED or not any(updates.values()) or chart.lr == 0.0:
            return
        gradients = table.relative_gradients()
        highest = max(gradients.values(), default=0.0)
        for layer, update in updates.items():
            gradient = gradients.get(layer)
            # so small a gradient is lost to rounding: RUN302's business
            lost = gradient is not None and 0.0 < gradient < _UNDERFLOW * highest
            length = self._streaks.count(layer, update == 0.0 and not lost, table.at)
            if length < _IN_A_ROW or layer in self._told or len(self._told) >= _REPORTED:
                continue
            if gradient or not _is_cut_by_dead_units(table):
                self._told.add(layer)
                yield self._report(chart, layer, gradient)

    def _report(self, chart: Chart, layer: str, gradient: float | None) -> Issue:
        since = self._streaks.since(layer)
        why = "although it has a gradient"
        if not gradient:
            why = "and it gets no gradient" if gradient == 0.0 else "and its gradient is not logged"
        return verdict(
            UPDATES_STOPPED,
            chart,
            Finding(
                message=f"{layer} did not change by a single bit in {_IN_A_ROW} measurements from "
                f"step {since.step} on while other layers did, {why}.",
                onset=since,
                where=layer,
                severity=None if gradient else Severity.MEDIUM,
                confidence=1.0 if gradient else 0.8,
                evidence={
                    "update_ratio": Quantity(value=0.0, limit=0.0),
                    "relative_gradient": "not logged" if gradient is None else gradient,
                },
            ),
        )


def _is_cut_by_dead_units(table: LayerTable) -> bool:
    return any(share > _DEAD for share in table.outputs("dead_fraction").values())

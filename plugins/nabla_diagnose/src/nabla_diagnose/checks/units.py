"""RUN401, RUN402 and RUN410: outputs that are always zero, or always at the end of their range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nabla_core.issue import Issue, Quantity

from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..rules.layers import DEAD_UNITS, EVERYTHING_DROPPED, SATURATED_UNITS
from .check import Finding, LayerCheck, verdict
from .streaks import Streaks

__all__ = ["UnitsCheck"]

_DEAD = 0.98
_ALIVE = 0.5
_SATURATED = 0.7
_SATURATED_FROM_START = 0.5
"""In the first three measurements; of good runs none had more than a third."""
_IN_A_ROW = 3
_EARLY = 10
_SHRUNK = 0.05


class UnitsCheck(LayerCheck):
    """Reports the first layer, in the order of the model, whose units are dead or saturated."""

    rules = (DEAD_UNITS, SATURATED_UNITS, EVERYTHING_DROPPED)

    def __init__(self) -> None:
        self._dead = Streaks()
        self._saturated = Streaks()
        self._told: set[str] = set()

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """See :class:`LayerCheck`."""
        if "dead" not in self._told:
            yield from self._find_dead(chart, table)
        if "saturated" not in self._told and table.count <= _EARLY:
            yield from self._find_saturated(chart, table)

    def _find_dead(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        shares = table.outputs("dead_fraction")
        alive_before = False
        for layer, share in shares.items():
            length = self._dead.count(layer, share > _DEAD, table.at)
            if length >= _IN_A_ROW and not self._told & {"dead", "dropped"}:
                yield from self._dead_layer(chart, table, layer, alive_before)
            alive_before = share < _ALIVE

    def _dead_layer(
        self, chart: Chart, table: LayerTable, layer: str, alive_before: bool
    ) -> Iterable[Issue]:
        source = table.source_of(layer)
        since = self._dead.since(layer)
        share = table.column("dead_fraction")[layer]
        gone = [name for name in table.weighted if _is_gone(table, name)]
        if "RUN404" in chart.found or len(gone) > 1 or (gone and gone != [source]):
            return  # dead because weights are nothing, which RUN404 and RUN408 say
        if source == layer and alive_before and _all_zero(table, layer):
            self._told.add("dropped")
            yield _dropped(chart, layer, since)
            return
        self._told.add("dead")
        yield verdict(
            DEAD_UNITS,
            chart,
            Finding(
                message=f"{share:.0%} of the units of {layer} are zero for every sample (limit "
                f"{_DEAD:.0%}), {_IN_A_ROW} measurements in a row from step {since.step} on.",
                onset=since,
                where=source,
                confidence=0.95,
                evidence={
                    "dead_fraction": Quantity(value=share, limit=_DEAD),
                    "measured_at": layer,
                },
            ),
        )

    def _find_saturated(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        for layer, share in table.outputs("saturated_fraction").items():
            limit = _SATURATED_FROM_START if table.count <= _IN_A_ROW else _SATURATED
            length = self._saturated.count(layer, share > limit, table.at)
            if length >= _IN_A_ROW and "saturated" not in self._told:
                self._told.add("saturated")
                yield _saturated(chart, table, (layer, limit), self._saturated.since(layer))


def _is_gone(table: LayerTable, layer: str) -> bool:
    norm, first = table.column("weight_norm").get(layer), table.first_norms.get(layer)
    return norm is not None and first is not None and norm <= _SHRUNK * first


def _all_zero(table: LayerTable, layer: str) -> bool:
    zeros: Mapping[str, float] = table.column("zero_fraction")
    return zeros.get(layer, 1.0) == 1.0


def _dropped(chart: Chart, layer: str, since: Moment) -> Issue:
    return verdict(
        EVERYTHING_DROPPED,
        chart,
        Finding(
            message=f"{layer} gives zero for every element, {_IN_A_ROW} measurements in a row from "
            f"step {since.step} on, while the layers before it are alive.",
            onset=since,
            where=layer,
            confidence=0.95,
            evidence={"zero_fraction": Quantity(value=1.0, limit=1.0)},
        ),
    )


def _saturated(chart: Chart, table: LayerTable, at: tuple[str, float], since: Moment) -> Issue:
    layer, limit = at
    share = table.column("saturated_fraction")[layer]
    return verdict(
        SATURATED_UNITS,
        chart,
        Finding(
            message=f"{share:.0%} of the outputs of {layer} sit at the end of its range (limit "
            f"{limit:.0%}), {_IN_A_ROW} measurements in a row from step {since.step} on.",
            onset=since,
            where=table.source_of(layer),
            evidence={
                "saturated_fraction": Quantity(value=share, limit=limit),
                "measured_at": layer,
            },
        ),
    )

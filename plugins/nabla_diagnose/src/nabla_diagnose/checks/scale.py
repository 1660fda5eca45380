"""RUN403, RUN405, RUN406 and RUN505: the spread of what goes into and comes out of layers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..robust import median
from ..rules.layers import (
    ACTIVATION_SCALE_DRIFT,
    ATTENTION_ENTROPY_COLLAPSE,
    REPRESENTATION_COLLAPSE,
)
from ..rules.samples import INPUT_SCALE
from .check import Finding, LayerCheck, verdict
from .streaks import Streaks

__all__ = ["ScaleCheck"]

_INPUT = 3.0
"""Spread of the first outputs over the norm of the weights: for inputs of unit size it is below
the inverse root of the number of units, so above 3 the inputs are tens of times too large."""
_UNTOUCHED = 0.3
"""Sum of the updates above which wide outputs may be the work of the steps."""
_PULL = 15.0
"""Times the gradients of all other layers: that of the first one is as large as its inputs."""
_EVEN = 3.0
"""Times the later ones that the second layer's may be: more grows from layer to layer."""
_LEAST_LAYERS = 3
_COLLAPSED = 0.01
_HALVED = 0.5
"""Enough where the loss is below 1 % of its start: a constant output satisfies it."""
_IN_A_ROW = 3
_DRIFT = 10.0
_DRIFT_LAYERS = 3


class ScaleCheck(LayerCheck):
    """Compares spreads with the weights, with the layer before, and with the first measurement."""

    rules = (
        ACTIVATION_SCALE_DRIFT,
        ATTENTION_ENTROPY_COLLAPSE,
        REPRESENTATION_COLLAPSE,
        INPUT_SCALE,
    )

    def __init__(self) -> None:
        self._widest = 0.0
        self._first_entropy: dict[str, float] = {}
        self._streaks = Streaks()
        self._told: set[str] = set()

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """See :class:`LayerCheck`."""
        if table.count == 1:
            yield from self._drift(chart, table)
        untouched = table.count == 1 or chart.distance < _UNTOUCHED
        if table.count <= 2 and untouched and "input" not in self._told:
            yield from self._input(chart, table)
        if table.count == 1 and "input" not in self._told:
            yield from self._pulled(chart, table)
        if chart.options.loss == "custom":
            yield from self._collapse(chart, table)
        yield from self._entropy(chart, table)

    def _input(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        spreads = table.outputs("activation_std")
        norms = table.column("weight_norm")
        if not spreads or not table.weighted:
            return
        layer, value = next(iter(spreads.items()))
        source = table.source_of(layer)
        norm = norms.get(source, 0.0)
        if source == layer:  # whose outputs these are is not known: hardly wider than any could be
            source, norm = table.weighted[0], max(norms.values(), default=0.0)
        if source != table.weighted[0] or norm <= 0.0 or value <= _INPUT * norm:
            return
        self._told.add("input")
        yield verdict(
            INPUT_SCALE,
            chart,
            Finding(
                message=f"The outputs of {source} have a spread of {value:.3g}, {value / norm:.3g} "
                f"times the norm of its weights (limit {_INPUT:g}): its inputs are very large.",
                onset=table.at,
                where=source,
                evidence={"ratio": Quantity(value=value / norm, limit=_INPUT)},
            ),
        )

    def _pulled(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """Outputs that are bounded hide how large the inputs are, the gradient does not."""
        gradients = table.column("grad_norm")
        layers = [layer for layer in table.weighted if layer in gradients]
        if len(layers) < _LEAST_LAYERS:
            return
        first, second, *later = (gradients[layer] for layer in layers)
        others = max(second, *later)
        if not _PULL * others < first < math.inf or not 0.0 < second <= _EVEN * max(later):
            return
        self._told.add("input")
        yield verdict(
            INPUT_SCALE,
            chart,
            Finding(
                message=f"The gradient of {layers[0]} is {first / others:.3g} times that of any "
                f"other layer at step {chart.step} (limit {_PULL:g}): its inputs are very large.",
                onset=table.at,
                where=layers[0],
                confidence=0.8,
                evidence={"ratio": Quantity(value=first / others, limit=_PULL)},
            ),
        )

    def _collapse(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        spreads = table.column("activation_std")
        last = next((name for name in reversed(table.weighted) if name in spreads), None)
        if last is None:
            return
        value = spreads[last]
        self._widest = max(self._widest, value)
        solved = 0.0 < median(chart.recent(10) or [0.0]) < _COLLAPSED * abs(chart.start_level)
        limit = (_HALVED if solved else _COLLAPSED) * self._widest
        if self._streaks.count(last, value < limit, table.at) != _IN_A_ROW:
            return
        yield verdict(
            REPRESENTATION_COLLAPSE,
            chart,
            Finding(
                message=f"The outputs of {last} have a spread of {value:.3g} over the batch, "
                f"{value / self._widest:.2g} of the widest (limit {limit / self._widest:.2g}), "
                f"{_IN_A_ROW} measurements in a row, while the loss is at "
                f"{median(chart.recent(10)):.3g}.",
                onset=self._streaks.since(last),
                where=last,
                evidence={
                    "share": Quantity(value=value / self._widest, limit=limit / self._widest)
                },
            ),
        )

    def _entropy(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        for layer, value in table.column("attention_entropy").items():
            first = self._first_entropy.setdefault(layer, value)
            fallen = first > 0.0 and value < _COLLAPSED * first
            if self._streaks.count(f"entropy {layer}", fallen, table.at) == _IN_A_ROW:
                yield verdict(
                    ATTENTION_ENTROPY_COLLAPSE,
                    chart,
                    Finding(
                        message=f"The attention entropy of {layer} fell to {value / first:.2g} of "
                        f"the first (limit {_COLLAPSED}), {_IN_A_ROW} measurements in a row.",
                        onset=self._streaks.since(f"entropy {layer}"),
                        where=layer,
                        evidence={"share": Quantity(value=value / first, limit=_COLLAPSED)},
                    ),
                )

    @staticmethod
    def _drift(chart: Chart, table: LayerTable) -> Iterable[Issue]:
        spreads = [item for item in table.outputs("activation_std").items() if item[1] > 0.0]
        ratios = [b[1] / a[1] for a, b in zip(spreads, spreads[1:], strict=False)]
        for start in range(len(ratios) - _DRIFT_LAYERS + 1):
            window = ratios[start : start + _DRIFT_LAYERS]
            if min(window) > _DRIFT or max(window) < 1.0 / _DRIFT:
                layer = spreads[start + 1][0]
                yield verdict(
                    ACTIVATION_SCALE_DRIFT,
                    chart,
                    Finding(
                        message=f"From {layer} on the spread of the activations changes by "
                        f"{window[0]:.3g} per layer (limit {_DRIFT:g}), {_DRIFT_LAYERS} layers in "
                        "a row.",
                        onset=Moment(0, chart.step),
                        where=table.source_of(layer),
                        evidence={"ratio": Quantity(value=window[0], limit=_DRIFT)},
                    ),
                )
                return

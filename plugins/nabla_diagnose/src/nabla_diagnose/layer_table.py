"""Measurements of layers, with the layers' order and which activation belongs to which weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nabla_core.records import StepRecord

from .chart import Moment

__all__ = ["LayerTable"]

Column = Mapping[str, float]
_STANDS_OUT = 3.0
_SHARE = 0.5


class LayerTable:
    """The latest measurement of every layer. A layer without a value is absent.

    ``grad_norm``, ``weight_norm`` and ``update_ratio`` belong to layers with weights, the other
    columns to outputs.
    """

    def __init__(self) -> None:
        self.at = Moment(0, 0)
        self.count = 0
        self.columns: dict[str, Column] = {}
        self.weighted: tuple[str, ...] = ()
        self.first_norms: dict[str, float] = {}
        self.sources: dict[str, str] = {}

    def take(self, record: StepRecord, at: Moment) -> None:
        """Take the layers of a record in."""
        self.at = at
        self.count += 1
        self.columns = {
            name: _column(values, record.layout) for name, values in record.layers.items()
        }
        weighted = tuple(self.columns.get("weight_norm") or self.columns.get("update_ratio") or ())
        if weighted != self.weighted:
            self.weighted, self.sources = weighted, {}
        for layer, norm in self.column("weight_norm").items():
            self.first_norms.setdefault(layer, norm)

    def column(self, name: str) -> Column:
        """Return one measurement by layer; empty when it was not made."""
        return self.columns.get(name, {})

    def relative_gradients(self) -> dict[str, float]:
        """Return the norm of each layer's gradient over that of its weights, in layer order."""
        norms = self.column("weight_norm")
        return {
            layer: gradient / norms[layer]
            for layer, gradient in self.column("grad_norm").items()
            if norms.get(layer, 0.0) > 0.0
        }

    def most_changed(self) -> tuple[str, float] | None:
        """Return the layer that the step changed most and by how much, where one stands out.

        Its change, against its weights, is three times that of any other one, and its square more
        than half of the whole step's: a small layer may change much and matter little.
        """
        changes = self.column("update_ratio")
        norms = {**self.first_norms, **self.column("weight_norm")}
        finite = {layer: change for layer, change in changes.items() if 0.0 < change < math.inf}
        first, second, *_ = (*sorted(finite, key=finite.__getitem__, reverse=True), "", "")
        if not second or finite[first] < _STANDS_OUT * finite[second]:
            return None
        parts = {layer: (finite[layer] * norms.get(layer, 0.0)) ** 2 for layer in finite}
        return (first, finite[first]) if parts[first] > _SHARE * sum(parts.values()) else None

    def outputs(self, name: str) -> dict[str, float]:
        """Return a column for the layers that have no weights: activations and dropout."""
        return {
            layer: value for layer, value in self.column(name).items() if layer not in self.weighted
        }

    def source_of(self, layer: str) -> str:
        """Return the layer with weights whose output goes through ``layer``, by their names.

        An earlier sibling (``body.3`` for ``body.4``) or a layer whose name begins the name
        (``inp`` for ``inp_act``); otherwise ``layer`` itself.
        """
        if layer not in self.sources:
            self.sources[layer] = _source(layer, self.weighted)
        return self.sources[layer]


def _column(values: Sequence[float], layout: tuple[str, ...]) -> Column:
    # inside of an aligned array, NaN stands for what a layer does not have
    return {layer: value for layer, value in zip(layout, values, strict=False) if value == value}


def _source(layer: str, weighted: tuple[str, ...]) -> str:
    if layer in weighted:
        return layer
    parent, _, name = layer.rpartition(".")
    if name.isdigit():
        earlier = [
            (int(other), candidate)
            for candidate in weighted
            for above, _, other in [candidate.rpartition(".")]
            if above == parent and other.isdigit() and int(other) < int(name)
        ]
        if earlier:
            return max(earlier)[1]
    named = [candidate for candidate in weighted if layer.startswith(candidate)]
    return max(named, key=len) if named else layer

"""What a report can show of a run: its curves, and its layers over the steps, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from nabla_core.plots import Curves, Ladder, Plot, Scale, Series
from nabla_core.report import Section
from nabla_core.sampling import CurveSampler, GridSampler

from .layer_table import LayerTable
from .readers.span import Span

__all__ = ["Course"]

_CURVES: tuple[tuple[str, tuple[str, ...], Scale], ...] = (
    ("Loss", ("loss", "val_loss"), "linear"),
    ("Learning rate", ("lr",), "linear"),
    ("Gradient norm", ("grad_norm",), "log"),
    ("Update ratio", ("update_ratio",), "log"),
)
_MAPS = {
    "grad_norm": "Gradient norm of each layer",
    "update_ratio": "Update ratio of each layer",
    "activation_std": "Spread of each layer's output",
}
_SPREAD = 100.0
_ALONG = ("weight_norm", "grad_norm")
_MOST_RUNGS = 256
_ROWS_AT_ONCE = 512
_MANY_ROWS = 40
"""That are sorted out at once: they come in columns."""


class Course:
    """Keeps what is shown of one run; nothing is judged by it."""

    def __init__(self) -> None:
        self._curves = {name: CurveSampler() for _, names, _ in _CURVES for name in names}
        self._waiting: list[tuple[Sequence[int], Mapping[str, Sequence[float]]]] = []
        self._rows = 0
        self._maps = {name: GridSampler() for name in _MAPS}
        self._last: dict[str, Mapping[str, float]] = {}

    def take(self, step: int, signals: Mapping[str, float]) -> None:
        """Take the signals of a row in; they are sorted out once in many rows."""
        shown = {name: (signals[name],) for name in signals.keys() & self._curves.keys()}
        if shown:
            self.take_columns((step,), shown)

    def take_columns(self, steps: Sequence[int], columns: Mapping[str, Sequence[float]]) -> None:
        """Take the signals of some rows in that all of them have."""
        self._waiting.append((steps, columns))
        self._rows += len(steps)
        if self._rows >= _ROWS_AT_ONCE or len(steps) >= _MANY_ROWS:
            self._sort_out()

    def take_span(self, span: Span) -> None:
        """Take the signals of many rows in."""
        self._sort_out()
        for name, sampler in self._curves.items():
            if name in span.dense:
                sampler.extend(span.steps, span.dense[name])
            for step, value in zip(span.steps, span.sparse.get(name, ()), strict=False):
                if value is not None:
                    sampler.add(step, value)

    def take_layers(self, step: int, table: LayerTable) -> None:
        """Take the latest measurement of the layers in."""
        for name in _ALONG:
            if table.columns.get(name):
                self._last[name] = table.columns[name]
        for name, sampler in self._maps.items():
            column = table.columns.get(name)
            if column:
                sampler.add(step, column)

    def sections(self) -> Iterable[Section]:
        """Return the curves of the run and its layers, as far as there are any."""
        self._sort_out()
        curves = [plot for plot in map(self._curve, _CURVES) if plot is not None]
        if curves:
            yield Section(title="Course of the run", plots=tuple(curves))
        maps = [self._maps[name].heat_map(title) for name, title in _MAPS.items()]
        layers: list[Plot] = [plot for plot in maps if plot is not None]
        layers += self._ladder()
        if layers:
            yield Section(title="Layers", plots=tuple(layers))

    # ------------------------------------------------------------------ private
    def _sort_out(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        all_steps: list[int] = []
        if len(waiting) > 1:
            all_steps += chain.from_iterable(steps for steps, _ in waiting)
        for name, sampler in self._curves.items():
            having = [(steps, columns[name]) for steps, columns in waiting if name in columns]
            if len(having) == 1:
                sampler.extend(*having[0])
            elif having:
                steps = all_steps
                if len(having) < len(waiting):
                    steps = list(chain.from_iterable(found for found, _ in having))
                sampler.extend(steps, list(chain.from_iterable(values for _, values in having)))

    def _curve(self, wanted: tuple[str, tuple[str, ...], Scale]) -> Curves | None:
        title, names, scale = wanted
        found = [self._curves[name].series(name) for name in names]
        shown = tuple(series for series in found if len(series.at) > 1)
        if not shown:
            return None
        return Curves(title=title, series=shown, scale="log" if _spreads(shown) else scale)

    def _ladder(self) -> list[Ladder]:
        """Return the latest norms along the depth of the model."""
        names = [name for name in _ALONG if name in self._last]
        rungs = list(dict.fromkeys(layer for name in names for layer in self._last[name]))
        if len(rungs) < 2:
            return []
        shown = rungs[:: -(-len(rungs) // _MOST_RUNGS)]
        series = [_along(shown, name, self._last[name]) for name in names]
        note = f"{len(shown)} of {len(rungs)} layers are shown" if len(shown) < len(rungs) else ""
        return [
            Ladder(
                title="Norms along the model, as last measured",
                rungs=tuple(shown),
                series=tuple(series),
                scale="log",
                note=note,
            )
        ]


def _spreads(shown: Iterable[Series]) -> bool:
    """Whether the values are positive and so far apart that a linear scale hides most of them."""
    values = [value for series in shown for value in series.values if math.isfinite(value)]
    return bool(values) and min(values) > 0.0 and max(values) > _SPREAD * min(values)


def _along(rungs: list[str], name: str, column: Mapping[str, float]) -> Series:
    places = [index for index, layer in enumerate(rungs) if layer in column]
    return Series(
        name=name,
        at=tuple(places),
        values=tuple(column[rungs[index]] for index in places),
    )

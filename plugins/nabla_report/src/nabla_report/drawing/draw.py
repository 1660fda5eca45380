"""Any plot as a drawing, and thinned out when it is larger than a page can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nabla_core.plots import Curves, HeatMap, Ladder, Plot, Series, Table, Timeline
from nabla_core.sampling import CurveSampler

from .curves import draw_curves
from .frame import Drawing, Mark
from .heat_map import draw_heat_map
from .ladder import draw_ladder
from .table import draw_table
from .timeline import draw_timeline

__all__ = ["draw", "thinned"]

_MOST_POINTS = 1024
_MOST_CURVES = 12
_MOST_SPANS = 400
_MOST_ROWS, _MOST_COLUMNS = 256, 96


def draw(plot: Plot, marks: Sequence[Mark], reach: Sequence[float] = ()) -> Drawing:
    """Return the drawing of a plot; ``marks`` go on curves over steps.

    Args:
        plot: what to draw.
        marks: steps to mark.
        reach: numbers that the x axis of a timeline has to hold besides its own.
    """
    if isinstance(plot, Curves):
        return draw_curves(plot, marks if plot.x_label == "step" else ())
    if isinstance(plot, HeatMap):
        return draw_heat_map(plot)
    if isinstance(plot, Ladder):
        return draw_ladder(plot)
    return draw_table(plot) if isinstance(plot, Table) else draw_timeline(plot, reach)


def thinned(plot: Plot) -> Plot:
    """Return the plot with at most as many numbers as a page can hold, and a note if it is less.

    One without a positive number has no logarithms: its scale is linear then.
    """
    if isinstance(plot, (Curves, HeatMap, Ladder)):
        plot = _scaled(plot)
    if isinstance(plot, Curves):
        return _thinned_curves(plot)
    if isinstance(plot, HeatMap):
        return _thinned_map(plot)
    if isinstance(plot, Ladder) and len(plot.rungs) > _MOST_ROWS:
        return _thinned_ladder(plot)
    if isinstance(plot, Timeline) and len(plot.spans) > _MOST_SPANS:
        note = f"the first {_MOST_SPANS} of {len(plot.spans)} events are shown"
        return replace(plot, spans=plot.spans[:_MOST_SPANS], note=_noted(plot.note, note))
    return plot


def _scaled(plot: Curves | HeatMap | Ladder) -> Plot:
    if plot.scale != "log" or any(value > 0.0 for value in _numbers_of(plot)):
        return plot
    return replace(plot, scale="linear")


def _numbers_of(plot: Curves | HeatMap | Ladder) -> Iterator[float]:
    if isinstance(plot, HeatMap):
        return (value for row in plot.values for value in row if value is not None)
    return (value for series in plot.series for value in series.values)


def _thinned_curves(plot: Curves) -> Curves:
    shown = plot.series[:_MOST_CURVES]
    note = plot.note
    if len(shown) < len(plot.series):
        note = _noted(note, f"{len(shown)} of {len(plot.series)} curves are shown")
    return replace(plot, series=tuple(map(_fewer, shown)), note=note)


def _fewer(series: Series) -> Series:
    if len(series.at) <= 2 * _MOST_POINTS:
        return series
    sampler = CurveSampler(_MOST_POINTS)
    sampler.extend(series.at, series.values)
    return sampler.series(series.name)


def _thinned_map(plot: HeatMap) -> HeatMap:
    down = -(-len(plot.rows) // _MOST_ROWS) or 1
    across = -(-len(plot.columns) // _MOST_COLUMNS) or 1
    if down == across == 1:
        return plot
    note = f"one of {down} rows and one of {across} columns is shown"
    return replace(
        plot,
        rows=plot.rows[::down],
        columns=plot.columns[::across],
        values=tuple(row[::across] for row in plot.values[::down]),
        note=_noted(plot.note, note),
    )


def _thinned_ladder(plot: Ladder) -> Ladder:
    every = -(-len(plot.rungs) // _MOST_ROWS)
    return replace(
        plot,
        rungs=plot.rungs[::every],
        series=tuple(_at_rungs(series, every) for series in plot.series[:_MOST_CURVES]),
        note=_noted(plot.note, f"one of {every} rungs is shown"),
    )


def _at_rungs(series: Series, every: int) -> Series:
    kept = [
        (place // every, value)
        for place, value in zip(series.at, series.values, strict=True)
        if place % every == 0
    ]
    return Series(
        name=series.name,
        at=tuple(place for place, _ in kept),
        values=tuple(value for _, value in kept),
    )


def _noted(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more

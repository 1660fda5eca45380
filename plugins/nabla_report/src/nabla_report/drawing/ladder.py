"""Numbers along named rungs as SVG: rungs from top to bottom, numbers from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nabla_core.plots import Ladder, Series

from ..markup import Html, join, raw, tag
from .axis import Axis, number_label
from .frame import WIDTH, Drawing, bottom_ticks, shortened, svg

__all__ = ["draw_ladder"]

_LEFT, _RIGHT, _TOP = 180.0, WIDTH - 30.0, 10.0
_MOST_LABELS = 24
_MOST_ROWS = 200


def draw_ladder(plot: Ladder) -> Drawing:
    """Return the ladder with one line per series, and the limit as a dashed one."""
    limits = [] if plot.limit is None else [plot.limit]
    values = [value for series in plot.series for value in series.values]
    x = Axis.over([*values, *limits], (_LEFT, _RIGHT), plot.scale)
    bottom = _TOP + min(440.0, max(60.0, 20.0 * len(plot.rungs)))
    y = Axis(low=-0.5, high=len(plot.rungs) - 0.5, start=_TOP, stop=bottom)
    caption = f"{plot.title}. {_ranges(plot.series)}"
    picture = svg(
        bottom + 40,
        caption,
        bottom_ticks(x, _TOP, bottom, plot.unit),
        _rung_labels(plot.rungs, y),
        _limit(plot.limit, x, bottom),
        *[_line(series, number, x, y) for number, series in enumerate(plot.series)],
    )
    legend = tag(
        "ul",
        *[
            tag("li", tag("span", class_=f"swatch c{number % 6}"), series.name)
            for number, series in enumerate(plot.series)
        ],
        class_="legend",
    )
    return Drawing(
        picture=join([legend, picture]),
        caption=caption,
        headings=("rung", *(series.name for series in plot.series)),
        rows=list(_rows(plot)),
    )


def _line(series: Series, number: int, x: Axis, y: Axis) -> Html:
    points = [
        (x.at(value), y.at(place))
        for place, value in zip(series.at, series.values, strict=True)
        if x.shows(value)
    ]
    if not points:
        return raw("")
    path = "L".join(f"{across:.1f} {down:.1f}" for across, down in points)
    dots = "".join(f'<circle cx="{a:.1f}" cy="{d:.1f}" r="2.5"/>' for a, d in points)
    drawn = raw(f'<path class="curve c{number % 6}" d="M{path}"/>')
    return join([drawn, raw(f'<g class="dots c{number % 6}">{dots}</g>')])


def _rung_labels(rungs: Sequence[str], y: Axis) -> Html:
    every = max(1, -(-len(rungs) // _MOST_LABELS))
    return join(
        tag("text", shortened(rungs[index]), x=_LEFT - 8, y=f"{y.at(index) + 4:.1f}",
            text_anchor="end")
        for index in range(0, len(rungs), every)
    )  # fmt: skip


def _limit(limit: float | None, x: Axis, bottom: float) -> Html:
    if limit is None or not x.shows(limit):
        return raw("")
    line = raw(f'<path d="M{x.at(limit):.1f} {_TOP:g}V{bottom:.1f}"/>')
    return tag("g", tag("title", f"limit {number_label(limit)}"), line, class_="limit")


def _ranges(series: Sequence[Series]) -> str:
    parts = [
        f"{one.name}: from {number_label(min(one.values))} to {number_label(max(one.values))}"
        for one in series
        if one.values
    ]
    return "; ".join(parts) + "."


def _rows(plot: Ladder) -> Iterator[list[str]]:
    known = [dict(zip(series.at, series.values, strict=True)) for series in plot.series]
    every = max(1, -(-len(plot.rungs) // _MOST_ROWS))
    for index in range(0, len(plot.rungs), every):
        numbers = [number_label(one[index]) if index in one else "" for one in known]
        yield [plot.rungs[index], *numbers]

"""Curves over steps as SVG, with a line at each step where an issue was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nabla_core.plots import Curves, Series

from ..markup import Html, join, raw, tag
from .axis import Axis, number_label
from .frame import WIDTH, Drawing, Mark, bottom_ticks, svg

__all__ = ["draw_curves"]

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 70.0, WIDTH - 14.0, 22.0, 190.0, 228.0
_ROOM_FOR_LABEL = 60.0
_MOST_ROWS = 20


def draw_curves(plot: Curves, marks: Sequence[Mark]) -> Drawing:
    """Return the curves; ``marks`` within their steps are drawn too."""
    x = Axis.over((place for series in plot.series for place in series.at), (_LEFT, _RIGHT))
    values = (value for series in plot.series for value in series.values)
    y = Axis.over(values, (_BOTTOM, _TOP), plot.scale)
    inside = [mark for mark in marks if x.low <= mark.step <= x.high]
    caption = _caption(plot, inside)
    lines = [_line(series, number, x, y) for number, series in enumerate(plot.series)]
    picture = svg(
        _HEIGHT, caption, _left_ticks(y), bottom_ticks(x, _TOP, _BOTTOM, plot.x_label), *lines,
        _marks(inside, x),
    )  # fmt: skip
    return Drawing(
        picture=join([_legend(plot), picture]),
        caption=caption,
        headings=("curve", plot.x_label, "value"),
        rows=list(_rows(plot)),
    )


def _line(series: Series, number: int, x: Axis, y: Axis) -> Html:
    path: list[str] = []
    broken: list[str] = []
    pen = "M"
    for place, value in zip(series.at, series.values, strict=True):
        if not math.isfinite(place):
            continue
        if y.shows(value):
            # h0: with round ends, a value between two that are missing is a dot
            end = "h0" if pen == "M" else ""
            path.append(f"{pen}{x.at(place):.1f} {y.at(value):.1f}{end}")
            pen = "L"
            continue
        pen = "M"
        if not math.isfinite(value) and len(broken) < _MOST_ROWS:
            broken.append(f"M{x.at(place) - 3:.1f} {_TOP + 2:.1f}l6 6m0 -6l-6 6")
    drawn = raw(f'<path class="curve c{number % 6}" d="{"".join(path)}"/>') if path else raw("")
    bad = raw(f'<path class="broken" d="{"".join(broken)}"/>') if broken else raw("")
    return join([drawn, bad])


def _left_ticks(y: Axis) -> Html:
    parts = []
    for tick in y.ticks():
        place = y.at(tick)
        parts.append(raw(f'<path class="grid" d="M{_LEFT:g} {place:.1f}H{_RIGHT:g}"/>'))
        label = number_label(tick)
        parts.append(tag("text", label, x=_LEFT - 6, y=f"{place + 4:.1f}", text_anchor="end"))
    return join(parts)


def _marks(marks: Sequence[Mark], x: Axis) -> Html:
    parts = []
    free_from = 0.0
    for mark in sorted(marks, key=lambda mark: mark.step):
        place = x.at(mark.step)
        line = raw(f'<path d="M{place:.1f} {_TOP - 4:g}V{_BOTTOM:g}"/>')
        label: str = raw("")
        if place >= free_from:
            label = tag("text", mark.label.partition(" ")[0], x=f"{place:.1f}", y=_TOP - 8,
                        text_anchor="middle")  # fmt: skip
            free_from = place + _ROOM_FOR_LABEL
        title = tag("title", f"{mark.label}, step {mark.step:g}")
        parts.append(tag("g", title, line, label, class_=f"mark {mark.severity}"))
    return join(parts)


def _legend(plot: Curves) -> Html:
    if len(plot.series) < 2 and not plot.unit:
        return raw("")
    items = [
        tag("li", tag("span", class_=f"swatch c{number % 6}"), series.name)
        for number, series in enumerate(plot.series)
    ]
    return tag("ul", *items, class_="legend")


def _caption(plot: Curves, marks: Sequence[Mark]) -> str:
    parts = []
    for series in plot.series:
        finite = [value for value in series.values if math.isfinite(value)]
        if finite:
            parts.append(
                f"{series.name}: first {number_label(series.values[0])}, last "
                f"{number_label(series.values[-1])}, lowest {number_label(min(finite))}, highest "
                f"{number_label(max(finite))}"
            )
        broken = len(series.values) - len(finite)
        if broken:
            parts.append(f"{broken} value{'s are' if broken > 1 else ' is'} not finite")
    if marks:
        parts.append(f"{len(marks)} issue{'s' if len(marks) > 1 else ''} marked")
    return f"{plot.title}. {'; '.join(parts)}."


def _rows(plot: Curves) -> Iterator[tuple[str, str, str]]:
    for series in plot.series:
        count = len(series.at)
        every = max(1, -(-count // _MOST_ROWS))
        for index in sorted({*range(0, count, every), count - 1} if count else ()):
            yield series.name, number_label(series.at[index]), number_label(series.values[index])

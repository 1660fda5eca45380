"""A grid of numbers: a table when its cells can be read, else a picture with a scale of colours."""

from __future__ import annotations

from collections.abc import Iterator

from nabla_core.plots import HeatMap

from ..markup import Html, join, tag
from .axis import Axis, number_label
from .colours import LEVELS, MISSING, ink, palette
from .frame import WIDTH, Drawing, shortened, svg
from .png import data_uri

__all__ = ["draw_heat_map"]

_READABLE_CELLS = 12
_LEFT, _RIGHT, _TOP = 180.0, WIDTH - 14.0, 8.0
_MOST_ROW_LABELS, _MOST_COLUMN_LABELS = 24, 8
_MOST_ROWS = 100


def draw_heat_map(plot: HeatMap) -> Drawing:
    """Return the grid with its numbers, or as a picture when it is large."""
    values = [value for row in plot.values for value in row if value is not None]
    axis = Axis.over(values, (0.0, 1.0), plot.scale)
    caption = (
        f"{plot.title}. {len(plot.rows)} by {len(plot.columns)} values{_reach(values, axis)}"
        f"{_blanks(plot, axis)}."
    )
    if not plot.rows or not plot.columns:
        return Drawing(picture=_table(plot, axis), caption=caption, is_table=True)
    if max(len(plot.rows), len(plot.columns)) <= _READABLE_CELLS:
        return Drawing(
            picture=_table(plot, axis),
            caption=caption,
            headings=(plot.row_label or "row", *plot.columns),
            rows=list(_cells(plot)),
            shows_numbers=True,
        )
    return Drawing(
        picture=join([_picture(plot, axis, caption), _colour_bar(plot, axis)]),
        caption=caption,
        headings=(plot.row_label or "row", "first", "last", "lowest", "highest"),
        rows=list(_rows(plot)),
    )


def _reach(values: list[float], axis: Axis) -> str:
    """From where to where the numbers reach; an axis of one number is wider than that."""
    shown = [value for value in values if axis.shows(value)]
    if not shown:
        return ""
    low, high = number_label(min(shown)), number_label(max(shown))
    return f", all of them {low}" if low == high else f" from {low} to {high}"


def _blanks(plot: HeatMap, axis: Axis) -> str:
    """Return what the colours mean where that is not plain: a logarithm has no place for zero."""
    blank = any(value is None or not axis.shows(value) for row in plot.values for value in row)
    if plot.scale == "log":
        zero = "; blank where zero, not finite or not measured" if blank else ""
        return f", logarithmic colours{zero}"
    return "; blank where not finite or not measured" if blank else ""


def _level(value: float | None, axis: Axis) -> int:
    if value is None or not axis.shows(value):
        return MISSING
    return round(min(1.0, max(0.0, axis.share(value))) * (LEVELS - 1))


def _picture(plot: HeatMap, axis: Axis, caption: str) -> Html:
    pixels = [bytes(_level(value, axis) for value in row) for row in plot.values]
    bottom = _TOP + min(420.0, max(120.0, 14.0 * len(plot.rows)))
    image = tag(
        "image",
        href=data_uri(pixels, palette(plot.scale), MISSING),
        x=_LEFT,
        y=_TOP,
        width=_RIGHT - _LEFT,
        height=bottom - _TOP,
        preserveAspectRatio="none",
        class_="cells",
    )
    return svg(bottom + 40, caption, image, _row_labels(plot, bottom), _column_labels(plot, bottom))


def _row_labels(plot: HeatMap, bottom: float) -> Html:
    size = (bottom - _TOP) / len(plot.rows)
    parts = []
    for index in range(0, len(plot.rows), -(-len(plot.rows) // _MOST_ROW_LABELS)):
        y = f"{_TOP + size * (index + 0.5) + 4:.1f}"
        label = shortened(plot.rows[index])
        parts.append(tag("text", label, x=_LEFT - 6, y=y, text_anchor="end"))
    return join(parts)


def _column_labels(plot: HeatMap, bottom: float) -> Html:
    size = (_RIGHT - _LEFT) / len(plot.columns)
    parts = []
    for index in range(0, len(plot.columns), -(-len(plot.columns) // _MOST_COLUMN_LABELS)):
        x = f"{_LEFT + size * (index + 0.5):.1f}"
        label = shortened(plot.columns[index], 10)
        parts.append(tag("text", label, x=x, y=bottom + 16, text_anchor="middle"))
    middle = f"{(_LEFT + _RIGHT) / 2:.1f}"
    parts.append(tag("text", plot.column_label, x=middle, y=bottom + 32, text_anchor="middle"))
    return join(parts)


def _colour_bar(plot: HeatMap, axis: Axis) -> Html:
    strip = data_uri([bytes(range(LEVELS))], palette(plot.scale), MISSING)
    bar = tag("img", src=strip, alt="", width=160, height=10)
    unit = f" {plot.unit}" if plot.unit else ""
    return tag(
        "p", number_label(axis.low), " ", bar, f" {number_label(axis.high)}{unit}", class_="bar"
    )


def _table(plot: HeatMap, axis: Axis) -> Html:
    corner = tag("th", plot.row_label, scope="col") if plot.row_label else tag("td")
    head = tag("tr", corner, *[tag("th", name, scope="col") for name in plot.columns])
    colours = palette(plot.scale)
    rows = []
    for name, row in zip(plot.rows, plot.values, strict=True):
        cells = [_cell(value, axis, colours) for value in row]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    body = tag("tbody", *rows)
    title = tag("caption", plot.title, class_="unseen")
    table = tag("table", title, tag("thead", head), body, class_="grid-of-numbers")
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=plot.title)


def _cell(value: float | None, axis: Axis, colours: list[tuple[int, int, int]]) -> Html:
    if value is None:
        return tag("td", "not measured")
    level = _level(value, axis)
    if level == MISSING:
        return tag("td", number_label(value), class_="number")
    colour = colours[level]
    style = f"background:rgb{colour};color:{ink(colour)}"
    return tag("td", f"{value:.3g}", style=style, class_="number")


def _cells(plot: HeatMap) -> Iterator[list[str]]:
    for name, row in zip(plot.rows, plot.values, strict=True):
        yield [name, *("not measured" if v is None else number_label(v) for v in row)]


def _rows(plot: HeatMap) -> Iterator[list[str]]:
    every = -(-len(plot.rows) // _MOST_ROWS)
    for name, row in list(zip(plot.rows, plot.values, strict=True))[::every]:
        known = [value for value in row if value is not None]
        if known:
            numbers = (known[0], known[-1], min(known), max(known))
            yield [name, *(number_label(number) for number in numbers)]

"""What a plugin can show: plots as plain values, which every reporter draws in its own way.

A producer fills one of five kinds and puts it into a :class:`~nabla_core.report.Section`; it need
not know HTML. Whoever shows a plot may thin it out, but never adds to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import InputError
from .numbers import json_number
from .severity import Severity

__all__ = [
    "Cell",
    "Curves",
    "HeatMap",
    "Ladder",
    "Plot",
    "Scale",
    "Series",
    "Span",
    "Table",
    "Timeline",
]

Scale = Literal["linear", "log", "signed"]
"""``signed``: centred on zero, the same distance in both directions (cosines, conflicts)."""

Cell = str | float | int | bool | None
"""A cell of a table; ``None`` is shown as not measured."""

_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One named course of a number.

    Attributes:
        name: e.g. ``"loss"``.
        at: shape ``[T]``, places along the x axis (steps), or along the rungs of a ladder.
        values: shape ``[T]``; NaN and the infinities are values, what was not measured is absent.

    Raises:
        InputError: ``at`` and ``values`` differ in length.
    """

    name: str
    at: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.at) != len(self.values):
            raise InputError(
                f"series {self.name!r}: {len(self.at)} places for {len(self.values)} values; "
                "each value needs its place"
            )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping; values have six digits."""
        return {
            "name": self.name,
            "at": [_number(place) for place in self.at],
            "values": [_number(value) for value in self.values],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Numbers over steps, on one y axis: the loss, the learning rate, a norm.

    Attributes:
        title: heading.
        series: the curves.
        x_label: what the x axis counts.
        unit: unit of the values.
        scale: of the y axis.
        note: one sentence on what was left out.
    """

    title: str
    series: tuple[Series, ...]
    x_label: str = "step"
    unit: str = ""
    scale: Scale = "linear"
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "kind": "curves",
            "title": self.title,
            "series": [series.to_dict() for series in self.series],
            "x_label": self.x_label,
            "unit": self.unit,
            "scale": self.scale,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A grid of numbers: layers over steps, losses against losses, ranks over steps.

    Attributes:
        title: heading.
        rows: names of the rows, the first one at the top.
        columns: names of the columns.
        values: shape ``[rows][columns]``; ``None`` where nothing was measured.
        row_label: what the rows are.
        column_label: what the columns are.
        unit: unit of the values.
        scale: of the colours.
        note: one sentence on what was left out.

    Raises:
        InputError: ``values`` has another shape than the names.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    row_label: str = ""
    column_label: str = ""
    unit: str = ""
    scale: Scale = "linear"
    note: str = ""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.values}
        if len(self.values) != len(self.rows) or not widths <= {len(self.columns)}:
            raise InputError(
                f"heat map {self.title!r}: needs {len(self.rows)} rows of {len(self.columns)} "
                f"values, got {len(self.values)} rows of {sorted(widths)}"
            )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping; values have six digits."""
        return {
            "kind": "heat_map",
            "title": self.title,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": [[_number(value) for value in row] for row in self.values],
            "row_label": self.row_label,
            "column_label": self.column_label,
            "unit": self.unit,
            "scale": self.scale,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Numbers over named rungs in a fixed order: the signal along the layers, errors along dtypes.

    Attributes:
        title: heading.
        rungs: names, from the input of the model to its output, or from coarse to fine.
        series: numbers at rungs; ``at`` holds indices of ``rungs``.
        unit: unit of the values.
        scale: of the axis of values.
        limit: number that the values are held against, if any.
        note: one sentence on what was left out.

    Raises:
        InputError: a place of a series is no index of a rung.
    """

    title: str
    rungs: tuple[str, ...]
    series: tuple[Series, ...]
    unit: str = ""
    scale: Scale = "linear"
    limit: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        known = set(range(len(self.rungs)))
        for series in self.series:
            if not known.issuperset(series.at):
                raise InputError(
                    f"ladder {self.title!r}: places of {series.name!r} must be whole numbers from "
                    f"0 to {len(self.rungs) - 1}"
                )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "kind": "ladder",
            "title": self.title,
            "rungs": list(self.rungs),
            "series": [series.to_dict() for series in self.series],
            "unit": self.unit,
            "scale": self.scale,
            "limit": _number(self.limit),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells, e.g. samples with their gradient norms.

    Attributes:
        title: heading.
        columns: headings of the columns.
        rows: shape ``[rows][columns]``.
        note: one sentence on what was left out.

    Raises:
        InputError: a row has another number of cells than there are columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if not {len(row) for row in self.rows} <= {len(self.columns)}:
            raise InputError(
                f"table {self.title!r}: every row needs {len(self.columns)} cells, one per column"
            )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "kind": "table",
            "title": self.title,
            "columns": list(self.columns),
            "rows": [
                [_number(cell) if isinstance(cell, float) else cell for cell in row]
                for row in self.rows
            ],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that lasts from one step to another (``start`` = ``end``: a moment).

    Attributes:
        lane: what it happens to: a layer, a rank, a family of rules.
        label: what happens.
        start: first step.
        end: last step.
        severity: how bad it is, if it is bad.
    """

    lane: str
    label: str
    start: float
    end: float
    severity: Severity | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "lane": self.lane,
            "label": self.label,
            "start": _number(self.start),
            "end": _number(self.end),
            "severity": None if self.severity is None else self.severity.label,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened when, in lanes.

    Attributes:
        title: heading.
        spans: in any order.
        x_label: what the x axis counts.
        note: one sentence on what was left out.
    """

    title: str
    spans: tuple[Span, ...]
    x_label: str = "step"
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "kind": "timeline",
            "title": self.title,
            "spans": [span.to_dict() for span in self.spans],
            "x_label": self.x_label,
            "note": self.note,
        }


Plot = Curves | HeatMap | Ladder | Table | Timeline
"""Anything that can be shown."""


def _number(value: float | None) -> float | str | None:
    if value is None or isinstance(value, int):
        return value
    spelled = json_number(value)
    return float(f"{spelled:.{_DIGITS}g}") if isinstance(spelled, float) else spelled

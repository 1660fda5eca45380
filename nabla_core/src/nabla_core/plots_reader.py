"""Reading stored plots as hostile input: kinds, types and shapes are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast, get_args

from .numbers import number_from_json
from .plots import Cell, Curves, HeatMap, Ladder, Plot, Scale, Series, Span, Table, Timeline
from .severity import Severity

__all__ = ["plots_from_json"]

T = TypeVar("T")
Stored = Mapping[str, object]


def plots_from_json(value: object) -> tuple[Plot, ...]:
    """Return the plots of a stored section; kinds that a newer version added are left out.

    Raises:
        ValueError: something is of the wrong type.
        InputError: a plot has an impossible shape.
    """
    tables = _each(value, _stored)
    return tuple(
        _KINDS[kind](table) for table in tables if (kind := _text(table, "kind")) in _KINDS
    )


def _curves(table: Stored) -> Curves:
    return Curves(
        title=_text(table, "title"),
        series=_each(table.get("series", []), _series),
        x_label=_text(table, "x_label"),
        unit=_text(table, "unit"),
        scale=_scale(table),
        note=_text(table, "note"),
    )


def _heat_map(table: Stored) -> HeatMap:
    return HeatMap(
        title=_text(table, "title"),
        rows=_each(table.get("rows", []), str),
        columns=_each(table.get("columns", []), str),
        values=_each(table.get("values", []), lambda row: _each(row, _maybe)),
        row_label=_text(table, "row_label"),
        column_label=_text(table, "column_label"),
        unit=_text(table, "unit"),
        scale=_scale(table),
        note=_text(table, "note"),
    )


def _ladder(table: Stored) -> Ladder:
    return Ladder(
        title=_text(table, "title"),
        rungs=_each(table.get("rungs", []), str),
        series=_each(table.get("series", []), _series),
        unit=_text(table, "unit"),
        scale=_scale(table),
        limit=_maybe(table.get("limit")),
        note=_text(table, "note"),
    )


def _table(table: Stored) -> Table:
    return Table(
        title=_text(table, "title"),
        columns=_each(table.get("columns", []), str),
        rows=_each(table.get("rows", []), lambda row: _each(row, _cell)),
        note=_text(table, "note"),
    )


def _timeline(table: Stored) -> Timeline:
    return Timeline(
        title=_text(table, "title"),
        spans=_each(table.get("spans", []), lambda span: _span(_stored(span))),
        x_label=_text(table, "x_label"),
        note=_text(table, "note"),
    )


_KINDS: Mapping[str, Callable[[Stored], Plot]] = {
    "curves": _curves,
    "heat_map": _heat_map,
    "ladder": _ladder,
    "table": _table,
    "timeline": _timeline,
}


def _series(value: object) -> Series:
    table = _stored(value)
    return Series(
        name=_text(table, "name"),
        at=_each(table.get("at", []), number_from_json),
        values=_each(table.get("values", []), number_from_json),
    )


def _span(table: Stored) -> Span:
    severity = table.get("severity")
    return Span(
        lane=_text(table, "lane"),
        label=_text(table, "label"),
        start=number_from_json(table.get("start")),
        end=number_from_json(table.get("end")),
        severity=None if severity is None else Severity.parse(str(severity)),
    )


def _scale(table: Stored) -> Scale:
    scale = table.get("scale", "linear")
    if scale not in get_args(Scale):
        raise ValueError(f"unknown scale {scale!r}")
    return cast("Scale", scale)


def _maybe(value: object) -> float | None:
    return None if value is None else number_from_json(value)


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise ValueError(f"a cell is text or a number, not {type(value).__name__}")


def _stored(value: object) -> Stored:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def _each(value: object, make: Callable[[object], T]) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {type(value).__name__}")
    return tuple(make(item) for item in value)


def _text(table: Stored, key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    return value

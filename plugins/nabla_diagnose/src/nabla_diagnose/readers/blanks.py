"""Tables that spell "nothing was logged" as NaN."""

from __future__ import annotations

from collections.abc import Mapping

from .naming import Quantity, name_of
from .notes import Notes

__all__ = ["BlankFinder"]

Numbers = list[float | None]
_MIN_RETURNS = 3
_MIN_SHARE = 0.5


class BlankFinder:
    """Finds columns whose NaN means "not logged", in tables that leave no cell empty.

    Such a column begins with NaN beside a finite loss, or is mostly NaN and returns to numbers at
    least three times: a loss that broke does not heal again and again. In a row in which one of
    them has a number (an evaluation), NaN of the other columns means the same.
    """

    def __init__(self) -> None:
        self._sparse: frozenset[str] | None = None

    def clean(self, columns: dict[str, Numbers], notes: Notes) -> dict[str, Numbers]:
        """Return the columns with such NaN taken as absent."""
        if self._sparse is None:
            self._sparse = _find(columns)
            for name in sorted(self._sparse):
                notes.add(f"column {name!r}: nan means that nothing was logged")
        if not self._sparse:
            return columns
        evaluated = _rows_with_numbers(columns, self._sparse)
        return {
            name: _blanked(values, None if name in self._sparse else evaluated)
            for name, values in columns.items()
        }


def _is_nan(value: float | None) -> bool:
    return value is not None and value != value


def _blanked(values: Numbers, rows: set[int] | None) -> Numbers:
    """Return the values with NaN as absent, in all rows or only in some."""
    return [
        None if _is_nan(value) and (rows is None or row in rows) else value
        for row, value in enumerate(values)
    ]


def _rows_with_numbers(columns: Mapping[str, Numbers], names: frozenset[str]) -> set[int]:
    return {
        row
        for name in names & columns.keys()
        for row, value in enumerate(columns[name])
        if value is not None and not _is_nan(value)
    }


def _find(columns: Mapping[str, Numbers]) -> frozenset[str]:
    if any(None in values for values in columns.values()):
        return frozenset()
    losses = [
        values
        for name, values in columns.items()
        if name_of(name).quantity in (Quantity.LOSS, Quantity.LOSS_PART)
    ]
    begun = any(not _is_nan(values[0]) for values in losses)
    return frozenset(
        name
        for name, values in columns.items()
        if (begun and _is_nan(values[0])) or _returns(values)
    )


def _returns(values: Numbers) -> bool:
    missing = [_is_nan(value) for value in values]
    if sum(missing) < _MIN_SHARE * len(missing):
        return False
    returns = sum(before and not after for before, after in zip(missing, missing[1:], strict=False))
    return returns >= _MIN_RETURNS

"""Lines of a log in text to rows: what a line leaves unsaid was said by the lines before.

A line that only tells the epoch or step gives them to the lines that follow; lines that count
nothing themselves and complement each other are one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .naming import AXES, Quantity, Split, name_of, split_of
from .number import parse_number
from .plain_line import plain_line
from .text_line import in_split, is_measured, places_of, row_of_line

__all__ = ["rows_of_lines"]

_HEADING = re.compile(
    r"\W*(train(?:ing)?|valid(?:at(?:ing|ion))?|val|eval(?:uat(?:ing|ion))?|test(?:ing)?)"
    r"(?: (?:phase|set|loop))?\W*",
    re.IGNORECASE,
)
_COLUMN = re.compile(r"[A-Za-z][\w./@-]*")
_CELL = re.compile(r"([+-]?(?:nan|inf|\d+\.?\d*(?:e[+-]?\d+)?))(?:/\d+|[A-Z]|:)?", re.IGNORECASE)
_LEAST_COLUMNS = 3


def rows_of_lines(lines: Iterable[str]) -> Iterator[dict[str, float]]:
    """Yield the rows of a log in text. Lines without a measurement are passed over."""
    rows = _Rows()
    for line in lines:
        row = rows.below_header(line) or row_of_line(line)
        if not row:
            rows.take_heading(line)
        elif is_measured(row):
            yield from rows.take(row)
        else:
            yield from rows.take_place(row)
    yield from rows.close()


class _Rows:
    """Remembers what lines said that holds for the next ones."""

    def __init__(self) -> None:
        self._context: dict[str, float] = {}
        self._open: dict[str, float] = {}
        self._count = ""
        self._phase, self._trained = Split.UNSAID, False
        self._header: list[str] = []

    def below_header(self, line: str) -> dict[str, float]:
        """Return the numbers of a line that stand below the names of a header; else nothing."""
        if not self._header:
            return {}
        found = [_CELL.fullmatch(cell) for cell in line.split()[: len(self._header)]]
        numbers = [cell[1] for cell in found if cell is not None]
        if len(numbers) < len(self._header):
            return {}
        return dict(zip(self._header, map(parse_number, numbers), strict=True))

    def take_heading(self, line: str) -> None:
        """Note a header of columns, or a line such as ``Validating...``.

        The latter holds if training is announced, too.
        """
        words = line.split()
        if len(words) >= _LEAST_COLUMNS and all(map(_COLUMN.fullmatch, words)):
            self._header = words if is_measured(dict.fromkeys(words, 0.0)) else self._header
        found = _HEADING.fullmatch(plain_line(line)) if len(line) < 80 else None
        if found:
            self._phase = split_of(found[1])
            self._trained = self._trained or self._phase is Split.TRAIN

    def take_place(self, row: dict[str, float]) -> Iterator[dict[str, float]]:
        """Note a line that measures nothing, if it places the lines that follow."""
        axes = {name: value for name, value in row.items() if name_of(name).quantity in AXES}
        if 2 * len(axes) >= len(row):
            if places_of(axes):
                yield from self.close()
            self._context.update(self._counted(axes))

    def take(self, row: dict[str, float]) -> Iterator[dict[str, float]]:
        """Yield the row before, if this line is not a part of it."""
        if places_of(row):
            self._phase = Split.UNSAID
        elif self._trained and self._phase is not Split.TRAIN:
            row = {in_split(name, self._phase): value for name, value in row.items()}
        if not places_of(row) and self._open and not self._open.keys() & row.keys():
            self._open.update(row)
            return
        yield from self.close()
        row = self._counted(row)
        axes = {name for name in row if name_of(name).quantity in AXES}
        if axes:
            self._context = {n: v for n, v in self._context.items() if n not in axes}
        self._open = {**self._context, **row}

    def close(self) -> Iterator[dict[str, float]]:
        """Yield the row that is open."""
        if self._open:
            yield self._open
            self._open = {}

    def _counted(self, row: dict[str, float]) -> dict[str, float]:
        """Return a row that counts steps as others do: by the name that came first."""
        names = [name for name in row if name_of(name).quantity is Quantity.STEP]
        if not names:
            return row
        if not self._count:
            self._count = min(names, key=lambda name: name_of(name).rank)
        return row if self._count in row else {**row, self._count: row[names[0]]}

"""A table in text that can be read again and again: header, first rows, all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from nabla_core.errors import InputError

from .dialect import is_text_row, sniff_dialect, unique_names
from .lines import read_lines
from .notes import Notes

__all__ = ["Cells", "TableFile"]

Cells = list[str]
_SNIFFED_LINES = 60
_MAX_COLUMNS = 20_000


class TableFile:
    """A table in text.

    Args:
        path: the file.
        notes: gets remarks.

    Attributes:
        names: names of the columns; ``column1`` and so on where there is no header.
        sample: the first rows.

    Raises:
        InputError: it cannot be read, holds no row, or has more than 20,000 columns.
    """

    def __init__(self, path: Path, notes: Notes) -> None:
        self.path = path
        first = list(islice(_content(read_lines(path)), _SNIFFED_LINES))
        self._dialect = sniff_dialect(first)
        rows = [row for row in self._dialect.rows(first) if row]
        if not rows:
            raise InputError(f"{path}: holds no row")
        if len(rows[0]) > _MAX_COLUMNS:
            raise InputError(f"{path}: has {len(rows[0])} columns, at most {_MAX_COLUMNS} are read")
        self.has_header = any(_is_name(cell) for cell in rows[0])
        if self.has_header:
            self.names = unique_names(rows[0])
        else:
            self.names = [f"column{place}" for place in range(1, len(rows[0]) + 1)]
            notes.add("no header: the columns are called column1, column2, ...")
        if any(name.endswith(" (2)") for name in self.names):
            notes.add("a column occurs twice; the second is called NAME (2)")
        self.sample: list[Cells] = rows[1 if self.has_header else 0 :]

    def rows(self) -> Iterator[Cells]:
        """Yield the rows below the header.

        Raises:
            InputError: the file is damaged.
            csv.Error: a cell is larger than the csv module allows.
        """
        rows = self._dialect.rows(_content(read_lines(self.path)))
        if self.has_header:
            next(rows, None)
        return rows


def _is_name(cell: str) -> bool:
    return is_text_row([cell])


def _content(lines: Iterable[str]) -> Iterator[str]:
    """Leave out comments before the table; one right above numbers is its header."""
    iterator = iter(lines)
    comment = ""
    for line in iterator:
        if line.startswith(("#", "%")):
            comment = line.lstrip("#% \t")
        elif line.strip():
            is_headed = not comment or any(map(_is_name, line.replace(",", " ").split()))
            return chain([line] if is_headed else [comment, line], iterator)
    return iter([comment] if comment else [])

"""A table in text that can be read again and again: header, first rows, all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from nabla_core.errors import InputError

from .dialect import is_text_row, sniff_dialect, unique_names
from .lines import read_lines, read_texts
from .notes import Notes

__all__ = ["Cells", "TableFile", "content_of"]

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
        dialect: how its rows are written.

    Raises:
        InputError: it cannot be read, holds no row, or has more than 20,000 columns.
    """

    def __init__(self, path: Path, notes: Notes) -> None:
        self.path = path
        first = list(islice(content_of(read_lines(path)), _SNIFFED_LINES))
        self.dialect = sniff_dialect(first)
        rows = [row for row in self.dialect.rows(first) if row]
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
        return self._below_header(read_lines(self.path))

    def rows_and_texts(self) -> tuple[Iterator[Cells], Iterator[str]]:
        """Return the first rows below the header, and the rest as pieces of whole lines.

        The pieces are there only if the table is large and its first rows are written plainly.

        Raises:
            InputError: the file is damaged.
            csv.Error: a cell is larger than the csv module allows.
        """
        texts = read_texts(self.path)
        first = next(texts, "")
        if '"' in first or self.dialect.decimal_comma or self.dialect.separator not in ",;\t":
            return self.rows(), iter(())
        lines = first.split("\n")[:-1]
        if len(lines) < 2 * _SNIFFED_LINES:
            return self.rows(), iter(())
        return self._below_header(lines), texts

    def _below_header(self, lines: Iterable[str]) -> Iterator[Cells]:
        rows = self.dialect.rows(content_of(lines))
        if self.has_header:
            next(rows, None)
        return rows


def _is_name(cell: str) -> bool:
    return is_text_row([cell])


def content_of(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines without comments before the table; one right above numbers is its header."""
    iterator = iter(lines)
    comment = ""
    for line in iterator:
        if line.startswith(("#", "%")):
            comment = line.lstrip("#% \t")
        elif line.strip():
            is_headed = not comment or any(map(_is_name, line.replace(",", " ").split()))
            return chain([line] if is_headed else [comment, line], iterator)
    return iter([comment] if comment else [])

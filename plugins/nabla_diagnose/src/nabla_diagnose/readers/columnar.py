"""Rows of cells to blocks of numbers, a column at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, islice

from .blanks import BlankFinder
from .block import BLOCK_ROWS, Block
from .dialect import is_text_row, unique_names
from .notes import Notes
from .number import parse_cell
from .plain_cells import plain_columns
from .table_file import Cells, TableFile

__all__ = ["blocks_of_cells", "blocks_of_table", "is_summary"]

_SUMMARIES = frozenset(
    {"mean", "average", "avg", "total", "best", "final", "std", "min", "max", "summary", "sum"}
)

Numbers = list[float | None]


def blocks_of_cells(
    rows: Iterable[Cells], names: Sequence[str], notes: Notes, keep: Sequence[int] | None = None
) -> Iterator[Block]:
    """Yield blocks of a plain table.

    Args:
        rows: the cells below the header.
        names: names of the columns.
        notes: gets remarks.
        keep: places of the columns that are wanted; default all.
    """
    yield from _Columns(list(names), notes, keep).blocks_of(rows)


def blocks_of_table(table: TableFile, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a plain table that may be large.

    Its first rows are read one by one. Of the others, pieces in which every cell is a plain number
    are read at once, if numpy is there; the blocks are the same, but for their size.
    """
    columns = _Columns(list(table.names), notes, None)
    rows, texts = table.rows_and_texts()
    yield from columns.blocks_of(rows)
    has_numpy = find_spec("numpy") is not None
    for text in texts:
        plain = columns.plain_block(text, table.dialect.separator) if has_numpy else None
        if plain is not None:
            yield plain
            continue
        lines = text.split("\n")[:-1]
        if '"' not in text:
            yield from columns.blocks_of(table.dialect.rows(lines))
            continue
        rest = (line for piece in texts for line in piece.split("\n")[:-1])
        yield from columns.blocks_of(table.dialect.rows(chain(lines, rest)))


def is_summary(row: Sequence[str]) -> bool:
    """Whether a row sums up others: its first text is a word such as ``mean`` or ``best``."""
    first = next((cell for cell in row if cell.strip()), "")
    return first.strip().lower() in _SUMMARIES


class _Columns:
    def __init__(self, names: list[str], notes: Notes, keep: Sequence[int] | None) -> None:
        self._names = names
        self._notes = notes
        self._keep = range(len(names)) if keep is None else keep
        self._header: Cells | None = None
        self._texts: set[str] = set()
        self._blanks = BlankFinder()
        self._starts_run = False

    def blocks_of(self, rows: Iterable[Cells]) -> Iterator[Block]:
        iterator = iter(rows)
        while chunk := list(islice(iterator, BLOCK_ROWS)):
            yield from self._blocks(chunk)

    def plain_block(self, text: str, separator: str) -> Block | None:
        """Return the block of a piece in which every cell is a plain number, else ``None``."""
        found = plain_columns(text, len(self._names), separator)
        if found is None:
            return None
        size = len(found[0].values)
        kept = {
            name: column
            for place, (name, column) in enumerate(zip(self._names, found, strict=True))
            if name not in self._texts and place in self._keep
        }
        block = self._block({name: column.values for name, column in kept.items()}, size)
        return replace(
            block,
            full=frozenset(name for name, column in kept.items() if column.is_full),
            rising=frozenset(name for name, column in kept.items() if column.rises),
        )

    def _blocks(self, chunk: list[Cells]) -> Iterator[Block]:
        columns = self._numbers(chunk) if set(map(len, chunk)) == {len(self._names)} else None
        if columns is None:
            for part in self._parts(chunk):
                yield self._block(self._converted(part), len(part))
        else:
            yield self._block(columns, len(chunk))

    def _block(self, columns: dict[str, Numbers], size: int) -> Block:
        starts_run, self._starts_run = self._starts_run, False
        return Block(
            columns=self._blanks.clean(columns, self._notes), size=size, starts_run=starts_run
        )

    def _numbers(self, chunk: list[Cells]) -> dict[str, Numbers] | None:
        """Convert columns of plain numbers; ``None`` if a text may be a repeated header."""
        columns: dict[str, Numbers] = {}
        for place, cells in enumerate(zip(*chunk, strict=True)):
            name = self._names[place]
            if name in self._texts or place not in self._keep:
                continue
            try:
                columns[name] = _plain_numbers(cells)
            except ValueError:
                return None
        return columns

    def _converted(self, rows: list[Cells]) -> dict[str, Numbers]:
        columns: dict[str, Numbers] = {}
        for place in self._keep:
            if place >= len(self._names) or self._names[place] in self._texts:
                continue
            cells = [_cell(row[place]) if place < len(row) else None for row in rows]
            texts = sum(isinstance(cell, str) for cell in cells)
            if texts and all(cell is None or isinstance(cell, str) for cell in cells):
                if texts > 1 or len(rows) == 1:
                    self._texts.add(self._names[place])
                    shown = next(str(cell)[:20] for cell in cells if cell is not None)
                    self._notes.add(f"column {self._names[place]!r} holds text such as {shown!r}")
                continue
            if texts:
                self._notes.add(f"column {self._names[place]!r}: a text among numbers", texts)
            columns[self._names[place]] = [None if isinstance(c, str) else c for c in cells]
        return columns

    def _parts(self, chunk: list[Cells]) -> Iterator[list[Cells]]:
        """Cut at repeated headers, and leave out what is no row."""
        part: list[Cells] = []
        for row in chunk:
            if len(row) > 1 and is_text_row(row):
                if is_summary(row):
                    continue
                if part:
                    yield part
                self._begin(row)
                part = []
            elif is_summary(row):
                self._notes.add("a summary row was left out")
            else:
                if len(row) != len(self._names):
                    self._notes.add(
                        f"a row has {'more' if len(row) > len(self._names) else 'fewer'} "
                        "cells than the header"
                    )
                part.append(row)
        if part:
            yield part

    def _begin(self, header: Cells) -> None:
        names = unique_names(header)
        if [name for name in names if name in self._names] or len(names) == len(self._names):
            self._starts_run = True
            if names != self._names and self._keep == range(len(self._names)):
                self._names, self._texts = names, set()
                self._keep = range(len(names))


def _plain_numbers(cells: Sequence[str]) -> Numbers:
    """Return a column whose cells are plain numbers, or empty, or any spelling of a number.

    Raises:
        ValueError: one is a text.
    """
    if "" not in cells:
        try:
            if cells[0].isdecimal() and cells[-1].isdecimal():
                return list(map(int, cells))  # a count, read in half the time
        except ValueError:
            return list(map(parse_cell, cells))
        try:
            return list(map(float, cells))
        except ValueError:
            return list(map(parse_cell, cells))
    try:
        return [float(cell) if cell else None for cell in cells]
    except ValueError:
        return list(map(parse_cell, cells))


def _cell(text: str) -> float | str | None:
    try:
        return parse_cell(text)
    except ValueError:
        return text

"""Tables in text: CSV of any tracker, separated by commas, semicolons, tabs, bars or blanks.

Understood are padded and repeated headers (a repeated one starts another run), rows of unequal
length, summary rows, columns that repeat, decimal commas, and numbers spelled as text. Shapes
beyond one row per step are told apart in :mod:`.reshaping`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from nabla_core.errors import InputError

from .block import Block
from .dialect import is_numeric, is_text_row, sniff_dialect
from .notes import Notes
from .reshaping import reshaped_blocks
from .table_file import TableFile, content_of

__all__ = ["read_blocks", "sniff"]

_SURE, _LIKELY, _UNLIKELY = 0.6, 0.3, 0.1


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a table.

    Raises:
        InputError: it cannot be read or is no table.
    """
    try:
        yield from reshaped_blocks(TableFile(path, notes), notes)
    except csv.Error as error:
        raise InputError(f"{path}: is no table: {error}") from error


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are a table."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    lines = list(content_of(lines[:60]))[:21]
    if not lines or lines[0].lstrip().startswith(("{", "[")):
        return 0.0
    try:
        dialect = sniff_dialect(lines)
        rows = list(dialect.rows(lines))
    except csv.Error:
        return 0.0
    if not rows or len(rows[0]) < 2:
        return 0.0
    if len(rows) > 1 and all(map(_is_prose, rows[1:])):
        return 0.0
    same = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
    if dialect.is_blank:
        is_plain = is_text_row(rows[0]) or all(map(is_numeric, chain.from_iterable(rows)))
        return _LIKELY if is_plain and same == 1 and len(rows) > 2 else 0.0
    if same < 0.8:
        return _UNLIKELY
    return _SURE if is_text_row(rows[0]) else _LIKELY


def _is_prose(row: Sequence[str]) -> bool:
    """Whether hardly a cell is a number, as in a log in text that has commas."""
    return sum(map(is_numeric, row)) < max(1, len(row) // 4)

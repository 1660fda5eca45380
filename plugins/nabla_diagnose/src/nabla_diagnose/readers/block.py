"""A piece of a log: some rows, column by column, as the file names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

__all__ = ["BLOCK_ROWS", "Block", "Row", "blocks_of_rows"]

BLOCK_ROWS = 256
"""Few enough that the cells of a block stay in the processor's cache."""

Row = Mapping[str, float]
"""One logged row: column to value; what was not logged is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some rows of a log.

    Attributes:
        columns: name to values, each of length ``size``; ``None`` where nothing was logged.
        size: number of rows.
        starts_run: the file itself says that another run starts here (a repeated header).
        full: columns that are known to have a number in every row.
        rising: columns that are known to hold whole numbers, each above the one before.
    """

    columns: Mapping[str, list[float | None]]
    size: int
    starts_run: bool = False
    full: frozenset[str] = frozenset()
    rising: frozenset[str] = frozenset()

    def rows(self) -> Iterator[dict[str, float]]:
        """Yield the rows, absent values left out."""
        names = list(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield {
                name: value for name, value in zip(names, values, strict=True) if value is not None
            }


def blocks_of_rows(rows: Iterable[Row]) -> Iterator[Block]:
    """Yield blocks of at most ``BLOCK_ROWS`` rows, each with the columns that occur in it."""
    iterator = iter(rows)
    while taken := list(islice(iterator, BLOCK_ROWS)):
        yield _block(taken)


def _block(rows: list[Row]) -> Block:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Block(columns=columns, size=len(rows))

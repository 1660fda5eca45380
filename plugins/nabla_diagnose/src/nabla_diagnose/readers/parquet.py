"""Parquet tables, through pyarrow (extra ``parquet``)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from nabla_core.errors import InputError

from .blanks import BlankFinder
from .block import BLOCK_ROWS, Block
from .notes import Notes
from .number import parse_cell

__all__ = ["read_blocks", "sniff"]


class _Batch(Protocol):
    def to_pydict(self) -> dict[str, list[object]]: ...


class _File(Protocol):
    def iter_batches(self, batch_size: int) -> Iterator[_Batch]: ...


class _Parquet(Protocol):
    def ParquetFile(self, source: str) -> _File: ...


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a parquet file.

    Raises:
        InputError: pyarrow is not installed, or it cannot read the file.
    """
    if find_spec("pyarrow") is None:
        raise InputError(
            f'{path}: parquet needs pyarrow; run: pip install "nabla-diagnose[parquet]"'
        )
    parquet = cast("_Parquet", import_module("pyarrow.parquet"))
    blanks = BlankFinder()
    try:
        for batch in parquet.ParquetFile(str(path)).iter_batches(batch_size=BLOCK_ROWS):
            columns = batch.to_pydict()
            numbers = {name: [_number(v) for v in values] for name, values in columns.items()}
            kept = {n: v for n, v in numbers.items() if any(cell is not None for cell in v)}
            size = len(next(iter(columns.values()), []))
            yield Block(columns=blanks.clean(kept, notes), size=size)
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        raise InputError(f"{path}: cannot be read as parquet: {error}") from error


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are a parquet file."""
    return float(head.startswith(b"PAR1"))


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return parse_cell(value)
        except ValueError:
            return None
    return None

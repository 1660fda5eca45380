"""A log as a person names it: a file, opened as one or several runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from nabla_core.errors import InputError
from nabla_core.records import StepRecord

from .assembling import Piece, assemble, look_ahead
from .axis import Axis
from .block import Block
from .foreign import foreign_reader, pieces_of
from .formats import Format, format_of
from .layer_columns import LayerColumns
from .mapping import ColumnMap, ReadOptions
from .notes import Notes

__all__ = ["LogRun", "read_run", "read_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """One run of a log.

    Attributes:
        path: the file.
        number: which run of the file it is, from 1.
        format: name of the file's format.
        columns: what each column means.
        notes: remarks, complete when the records have been read.
        pieces: the steps as they were read, to be used once, before the next run is asked for.
    """

    path: Path
    number: int
    format: str
    columns: ColumnMap
    notes: Notes
    pieces: Iterator[Piece] = field(repr=False)

    @property
    def records(self) -> Iterator[StepRecord]:
        """The steps one by one; uses the pieces up."""
        return chain.from_iterable(piece.all_records() for piece in self.pieces)


def read_runs(path: Path, options: ReadOptions | None = None) -> Iterator[LogRun]:
    """Yield the runs of a log, in the order of the file, in constant memory.

    Args:
        path: a file of any known format, or the ``metrics`` folder of an MLflow run.
        options: which column is which, where names do not say it.

    Raises:
        InputError: it cannot be read, is of no known format, or holds no loss; the message lists
            the columns that were seen and says how to name them.
    """
    options = options or ReadOptions()
    notes = Notes()
    foreign = foreign_reader(path) if path.exists() else None
    if foreign is not None:
        name, columns = foreign.name, ColumnMap(axis=Axis(step="step"), signals={})
        cursor = _Cursor(pieces_of(foreign, path, options))
    else:
        form = format_of(path)
        columns, layers, blocks = _opened(path, form, options, notes)
        name, cursor = form.name, _Cursor(assemble(blocks, columns, layers))
    number = 0
    while cursor.next_run():
        number += 1
        yield LogRun(
            path=path,
            number=number,
            format=name,
            columns=columns,
            notes=notes,
            pieces=cursor.pieces(),
        )
    if not number:
        raise InputError(f"{path}: holds no step with a number")


def read_run(path: Path, options: ReadOptions | None = None) -> Iterator[StepRecord]:
    """Yield the records of a log that holds one run.

    Raises:
        InputError: as :func:`read_runs`, or the log holds several runs.
    """
    for run in read_runs(path, options):
        if run.number > 1:
            raise InputError(f"{path}: holds several runs; use read_runs, or nabla lint")
        yield from run.records


def _opened(
    path: Path, form: Format, options: ReadOptions, notes: Notes
) -> tuple[ColumnMap, LayerColumns, Iterator[Block]]:
    try:
        columns, layers, blocks = look_ahead(form.read(path, notes), options)
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    if not columns.has_loss and "loss" not in options.columns:
        seen = ", ".join([*columns.signals, *filter(None, [columns.axis.step])][:40]) or "none"
        remarks = "".join(f"; {line}" for line in notes.lines()[:3])
        raise InputError(
            f"{path}: no column is a loss; columns seen: {seen}{remarks}; "
            "name it with --map loss=COLUMN (and --map val_loss=COLUMN, --map step=COLUMN)"
        )
    return columns, layers, blocks


class _Cursor:
    """Cuts a stream of pieces into runs; what a run leaves unread is skipped."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = iter(pieces)
        self._head: Piece | None = None

    def next_run(self) -> bool:
        """Go to the first record of the next run; ``False`` when there is none."""
        deque(self.pieces(), maxlen=0)  # the run before may not have been read to its end
        for piece in self._pieces:
            if not piece.begins:
                self._head = piece
                return True
        return False

    def pieces(self) -> Iterator[Piece]:
        """Return the pieces of the current run."""
        if self._head is None:
            return
        yield self._head
        for piece in self._pieces:
            if piece.begins:
                break
            yield piece
        self._head = None

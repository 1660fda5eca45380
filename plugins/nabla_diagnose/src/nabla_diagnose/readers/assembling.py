"""From blocks of columns to runs of step records, in one pass and constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import lt
from typing import cast

from nabla_core.errors import InputError
from nabla_core.records import StepRecord

from .block import Block
from .layer_columns import LayerColumns
from .mapping import ColumnMap, ReadOptions, map_columns, signal_for
from .naming import AXES, name_of
from .segments import PlaceKind, RunTracker
from .span import Span

__all__ = ["Piece", "assemble", "look_ahead"]

_LOOKAHEAD_BLOCKS = 32
_MILLISECONDS = 1e11  # a Unix time in seconds is below this until the year 5138


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows in a row that belong to one run, or the mark that another run begins.

    Attributes:
        records: in order; none for a mark, and none where there is a span.
        span: the rows as columns.
        begins: whether this is a mark.
    """

    records: list[StepRecord] = field(default_factory=list)
    span: Span | None = None
    begins: bool = False

    def all_records(self) -> Iterable[StepRecord]:
        """Return the records, however they are held."""
        return self.records if self.span is None else self.span.records()


def look_ahead(
    blocks: Iterable[Block], options: ReadOptions
) -> tuple[ColumnMap, LayerColumns, Iterator[Block]]:
    """Decide what the columns mean from the first blocks; return them with all blocks.

    Raises:
        InputError: there is no row, or a column that the person names does not exist.
    """
    iterator = iter(blocks)
    head: list[Block] = []
    for block in islice(iterator, _LOOKAHEAD_BLOCKS):
        head.append(block)
        columns = _joined(head)
        layers = LayerColumns.of(columns)
        scalar = {raw: values for raw, values in columns.items() if raw not in layers.columns}
        known = all(column in columns for column in options.columns.values())
        if known and map_columns(scalar, options).has_loss:
            break
    if not head:
        raise InputError("no row with a number")
    return map_columns(scalar, options), layers, chain(head, iterator)


def assemble(blocks: Iterable[Block], columns: ColumnMap, layers: LayerColumns) -> Iterator[Piece]:
    """Yield the records of a log, cut where another run begins.

    Rows of one step that complement each other (sparse logs) become one record.
    """
    assembler = _Assembler(columns, layers)
    if columns.axis.descending:
        blocks = _reversed(list(islice(blocks, _LOOKAHEAD_BLOCKS + 1)))
    for block in blocks:
        yield from assembler.take(block)
    yield from assembler.close()


@dataclass(slots=True, kw_only=True)
class _OpenRow:
    """A step that further rows may complete."""

    step: int
    time_s: float
    signals: dict[str, float]
    layers: dict[str, float]


class _Assembler:
    def __init__(self, columns: ColumnMap, layers: LayerColumns) -> None:
        self._columns = columns
        self._layers = layers
        self._signals: dict[str, str | None] = dict(columns.signals)
        self._signals.update(dict.fromkeys((columns.axis.step or "", columns.axis.epoch or "")))
        self._tracker = RunTracker(numbered=columns.axis.step is None, inner=columns.axis.inner)
        self._start_s: float | None = None
        self._open: _OpenRow | None = None

    def take(self, block: Block) -> Iterator[Piece]:
        if block.starts_run:
            yield from self._begin()
            self._tracker.begin()
        span = self._take_fast(block)
        if span is None:
            yield from self._take_rows(block)
            return
        yield from self.close()
        self._reopen(span.record(len(span) - 1))
        if len(span) > 1:
            yield Piece(span=span.part(0, len(span) - 1))

    def close(self) -> Iterator[Piece]:
        """Give out the record that further rows could have completed."""
        if self._open is not None:
            yield Piece(records=[self._record(self._open)])
            self._open = None

    def _begin(self) -> Iterator[Piece]:
        yield from self.close()
        yield Piece(begins=True)
        self._start_s = None

    def _reopen(self, last: StepRecord) -> None:
        """Hold the last step of a block back: the next block may begin with more of it."""
        signals = dict(last.signals)
        self._open = _OpenRow(step=last.step, time_s=last.time_s, signals=signals, layers={})
        self._tracker.know(signals)

    # ------------------------------------------------------------------ whole columns
    def _take_fast(self, block: Block) -> Span | None:
        """Return the rows of a block in which each row is a later step, else ``None``."""
        axis = self._columns.axis
        if self._layers.columns or self._tracker.offset or axis.inner:
            return None
        epochs = block.columns.get(axis.epoch or "")
        if axis.step is not None:
            steps = _rising(block, axis.step, self._tracker.last)
        elif epochs is None:
            steps = range(self._tracker.last + 1, self._tracker.last + 1 + block.size)
        else:
            return None
        if steps is None:
            return None
        self._tracker.skip_to(steps[-1], epochs[-1] if epochs else None, block.size)
        dense, sparse = self._signal_columns(block)
        return Span(steps=steps, times_s=self._times(block), dense=dense, sparse=sparse)

    def _signal_columns(
        self, block: Block
    ) -> tuple[dict[str, list[float]], dict[str, list[float | None]]]:
        dense: dict[str, list[float]] = {}
        sparse: dict[str, list[float | None]] = {}
        for raw, values in block.columns.items():
            signal = self._signal(raw)
            if signal is not None and (raw in block.full or None not in values):
                dense[signal] = cast("list[float]", values)
            elif signal is not None:
                sparse[signal] = values
        for signal, parts in self._columns.sums.items():
            summed = _summed([block.columns.get(part) for part in parts], block.size)
            if None in summed:
                sparse[signal] = summed
            else:
                dense[signal] = cast("list[float]", summed)
        return dense, sparse

    def _times(self, block: Block) -> list[float] | None:
        times = block.columns.get(self._columns.axis.time or "")
        if times is None or None in times:
            return None
        return [self._since_start(value) for value in times if value is not None]

    # ------------------------------------------------------------------ row by row
    def _take_rows(self, block: Block) -> Iterator[Piece]:
        axis = self._columns.axis
        for row in block.rows():
            step = row.get(axis.step) if axis.step is not None else None
            epoch = row.get(axis.epoch) if axis.epoch is not None else None
            signals, layers = self._row_signals(row)
            if not (signals or layers) or self._was_told(step, signals, layers):
                continue
            place = self._tracker.place(step, epoch, (*signals, *layers))
            if place.kind is PlaceKind.SAME and self._open is not None:
                self._open.signals.update(signals)
                self._open.layers.update(layers)
                continue
            yield from self.close()
            if place.kind is PlaceKind.RESTART:
                yield from self._begin()
            time_s = row.get(axis.time) if axis.time is not None else None
            elapsed_s = 0.0 if time_s is None else self._since_start(time_s)
            self._open = _OpenRow(step=place.step, time_s=elapsed_s, signals=signals, layers=layers)

    def _was_told(
        self, step: float | None, signals: Mapping[str, float], layers: Mapping[str, float]
    ) -> bool:
        """Whether a row says only what the step that is open has: a line that was logged twice."""
        known = self._open
        if known is None or step is None or step + self._tracker.offset != known.step:
            return False
        return all(
            name in given
            and (given[name] == value or (value != value and given[name] != given[name]))
            for told, given in ((signals, known.signals), (layers, known.layers))
            for name, value in told.items()
        )

    def _row_signals(self, row: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        layers = {raw: value for raw, value in row.items() if raw in self._layers.columns}
        signals = {
            signal: value
            for raw, value in row.items()
            if raw not in layers and (signal := self._signal(raw)) is not None
        }
        for signal, parts in self._columns.sums.items():
            if all(part in row for part in parts):
                signals[signal] = sum(row[part] for part in parts)
        return signals, layers

    def _record(self, row: _OpenRow) -> StepRecord:
        arrays, layout = self._layers.arrays(row.layers) if row.layers else ({}, ())
        return StepRecord(
            step=row.step, time_s=row.time_s, signals=row.signals, layers=arrays, layout=layout
        )

    def _signal(self, raw: str) -> str | None:
        if raw not in self._signals:  # an axis, or a column that came after the first rows
            name = name_of(raw)
            taken = [signal for signal in self._signals.values() if signal is not None]
            is_signal = name.quantity not in AXES and raw not in self._layers.columns
            self._signals[raw] = signal_for(name, taken) if is_signal else None
        return self._signals[raw]

    def _since_start(self, time_s: float) -> float:
        if not math.isfinite(time_s):
            return 0.0
        seconds = time_s / 1000 if time_s > _MILLISECONDS else time_s
        if self._start_s is None:
            self._start_s = seconds
        return max(0.0, seconds - self._start_s)


def _summed(parts: Sequence[list[float | None] | None], size: int) -> list[float | None]:
    """Return the sum of columns, row by row; ``None`` where one of them has nothing."""
    columns = [[None] * size if part is None else part for part in parts]
    found: list[float | None] = []
    for values in zip(*columns, strict=True):
        known = [value for value in values if value is not None]
        found.append(sum(known) if len(known) == len(parts) else None)
    return found


def _rising(block: Block, name: str, last: int) -> Sequence[int] | None:
    """Return whole steps that rise from ``last`` on, or ``None`` if they do not."""
    given = block.columns.get(name)
    if given is None:
        return None
    if name in block.rising:
        steps = cast("list[int]", given)
        return steps if steps[0] > last else None
    if None in given:
        return None
    if set(map(type, given)) == {int}:
        steps = cast("list[int]", given)
    else:
        try:
            steps = [int(step) for step in given if step is not None]
        except (ValueError, OverflowError):
            return None
    rising = steps[0] > last and all(map(lt, steps, islice(steps, 1, None)))
    return steps if rising else None


def _joined(blocks: list[Block]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for block in blocks for name in block.columns)
    return {
        name: [value for block in blocks for value in block.columns.get(name, [None] * block.size)]
        for name in names
    }


def _reversed(blocks: list[Block]) -> Iterator[Block]:
    if len(blocks) > _LOOKAHEAD_BLOCKS:
        raise InputError("the rows go from the last step to the first; sort the log by step")
    for block in reversed(blocks):
        columns = {name: values[::-1] for name, values in block.columns.items()}
        yield Block(columns=columns, size=block.size)

"""Rows of one run as columns of signals: each row is a later step than the one before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import setitem
from typing import cast

from nabla_core.records import StepRecord

from .bulk import make_records

__all__ = ["Span", "spans_of"]

_AT_ONCE = 256
"""Records made together: few enough to stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows of one run, without facts about layers.

    Attributes:
        steps: ``[T]`` steps, each above the one before.
        times_s: ``[T]`` seconds since the start of the run; ``None`` where no time was logged.
        dense: signal to ``[T]`` values, of the signals that every row has.
        sparse: signal to ``[T]`` values, ``None`` where nothing was logged.
    """

    steps: Sequence[int]
    times_s: Sequence[float] | None
    dense: Mapping[str, list[float]]
    sparse: Mapping[str, list[float | None]]

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, start: int, stop: int) -> Span:
        """Return the rows from ``start`` to before ``stop``."""
        return Span(
            steps=self.steps[start:stop],
            times_s=None if self.times_s is None else self.times_s[start:stop],
            dense={name: values[start:stop] for name, values in self.dense.items()},
            sparse={name: values[start:stop] for name, values in self.sparse.items()},
        )

    def of(self, wanted: Callable[[str], bool]) -> Span:
        """Return the same rows with the signals that are wanted, of all that every row has."""
        dense = {name: values for name, values in self.dense.items() if wanted(name)}
        return self if len(dense) == len(self.dense) else replace(self, dense=dense)

    def sparse_rows(self) -> list[int]:
        """Return the rows, in order, that have a signal which not every row has."""
        rows = {
            row
            for values in self.sparse.values()
            for row, value in enumerate(values)
            if value is not None
        }
        return sorted(rows)

    def extra(self, row: int) -> dict[str, float]:
        """Return what one row has besides what every row has."""
        return {
            name: value
            for name, values in self.sparse.items()
            if (value := values[row]) is not None
        }

    def signals(self, row: int) -> dict[str, float]:
        """Return what one row has."""
        return {name: values[row] for name, values in self.dense.items()} | self.extra(row)

    def record(self, row: int) -> StepRecord:
        """Return the record of one row."""
        time_s = 0.0 if self.times_s is None else self.times_s[row]
        return StepRecord(step=self.steps[row], time_s=time_s, signals=self.signals(row))

    def records(self) -> Iterator[StepRecord]:
        """Yield the records of all rows."""
        for start in range(0, len(self.steps), _AT_ONCE):
            yield from self.part(start, start + _AT_ONCE)._all_records()

    def _all_records(self) -> list[StepRecord]:
        """Return the records; the loops over rows are those of the C library."""
        size = len(self.steps)
        template = cast("dict[str, float]", dict.fromkeys(self.dense))
        rows = list(map(dict.copy, repeat(template, size)))
        for name, values in self.dense.items():
            deque(map(setitem, rows, repeat(name), values), maxlen=0)
        for name, known in self.sparse.items():
            for row, value in zip(rows, known, strict=True):
                if value is not None:
                    row[name] = value
        times_s = repeat(0.0) if self.times_s is None else self.times_s
        return make_records(self.steps, times_s, rows)


def spans_of(records: Iterable[StepRecord]) -> Iterator[Span | StepRecord]:
    """Yield records in their order, as spans where that is possible.

    A record with facts about layers, or whose step is not above the one before, stands alone.
    """
    together: list[StepRecord] = []
    for record in records:
        follows = not together or record.step > together[-1].step
        if record.layers or not follows or len(together) == _AT_ONCE:
            if together:
                yield _span(together)
            together = []
        if record.layers:
            yield record
        else:
            together.append(record)
    if together:
        yield _span(together)


def _span(records: list[StepRecord]) -> Span:
    rows = [record.signals for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    dense: dict[str, list[float]] = {}
    sparse: dict[str, list[float | None]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if None in values:
            sparse[name] = values
        else:
            dense[name] = cast("list[float]", values)
    return Span(
        steps=[record.step for record in records],
        times_s=[record.time_s for record in records],
        dense=dense,
        sparse=sparse,
    )

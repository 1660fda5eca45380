"""Keeping the course of a run in bounded memory, for plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from .plots import HeatMap, Scale, Series

__all__ = ["CurveSampler", "GridSampler"]


class CurveSampler:
    """Keeps one number per row; when there are too many, the lowest and highest of equal spans.

    A spike of one row stays visible however long the run is. Spans double as the run goes on.

    Args:
        most: spans that are kept at most; rows come on top until they fill spans.
    """

    def __init__(self, most: int = 512) -> None:
        self._most = most
        self._steps: list[float] = []
        self._lows: list[float] = []
        self._highs: list[float] = []
        self._new_steps: list[float] = []
        self._new_values: list[float] = []
        self._span_rows = 1

    def add(self, step: float, value: float) -> None:
        """Take a row in."""
        self.extend((step,), (value,))

    def extend(self, steps: Sequence[float], values: Sequence[float]) -> None:
        """Take rows in; cheapest for hundreds at once."""
        self._new_steps += steps
        self._new_values += values
        if len(self._new_values) >= self._most:
            self._fold()

    def series(self, name: str) -> Series:
        """Return what is kept."""
        at: list[float] = []
        values: list[float] = []
        before = math.inf
        following = (*self._steps[1:], *(self._new_steps[:1] or self._steps[-1:]))
        spans = zip(self._steps, following, self._lows, self._highs, strict=False)
        for step, after, low, high in spans:
            ends = [low] if low == high else [high, low] if high < before else [low, high]
            at += [step, (step + after) / 2][: len(ends)]
            values += ends
            before = high
        return Series(name=name, at=(*at, *self._new_steps), values=(*values, *self._new_values))

    def _fold(self) -> None:
        """Turn the new rows into spans of the present length; double it while they are too many."""
        span, count = self._span_rows, len(self._new_values)
        whole = count - count % span
        values = self._new_values[:whole]
        self._steps += self._new_steps[:whole:span]
        self._lows += _joined(min, values, span)
        self._highs += _joined(max, values, span)
        self._new_steps, self._new_values = self._new_steps[whole:], self._new_values[whole:]
        while len(self._steps) > self._most:
            self._steps = self._steps[::2]
            self._lows = _joined(min, self._lows, 2)
            self._highs = _joined(max, self._highs, 2)
            self._span_rows *= 2


def _joined(choose: Callable[..., float], values: list[float], span: int) -> list[float]:
    """Return one value of each ``span`` values; the last span may be shorter."""
    if span == 1:
        return list(values)
    whole = len(values) - len(values) % span
    parts = [values[start:whole:span] for start in range(span)]
    rest = [choose(values[whole:])] if whole < len(values) else []
    return [*map(choose, *parts), *rest]


class GridSampler:
    """Keeps measurements of many layers at some steps: at most ``most`` of them, evenly spread.

    Args:
        most: columns that are kept at most.
    """

    def __init__(self, most: int = 48) -> None:
        self._most = most
        self._every = 1
        self._count = 0
        self._columns: list[tuple[int, Mapping[str, float]]] = []

    def add(self, step: int, column: Mapping[str, float]) -> None:
        """Take a measurement in: layer to value. The mapping is kept, not copied."""
        if self._count % self._every == 0:
            self._columns.append((step, column))
            if len(self._columns) > self._most:
                self._columns = self._columns[::2]
                self._every *= 2
        self._count += 1

    def heat_map(self, title: str, *, scale: Scale = "log", most_rows: int = 256) -> HeatMap | None:
        """Return what is kept, layer by step; ``None`` when nothing was measured."""
        rows = list(dict.fromkeys(name for _, column in self._columns for name in column))
        if not rows:
            return None
        shown = rows[:: -(-len(rows) // most_rows)]
        notes = []
        if self._every > 1:
            notes.append(f"one of {self._every} measurements is shown")
        if len(shown) < len(rows):
            notes.append(f"{len(shown)} of {len(rows)} layers are shown")
        return HeatMap(
            title=title,
            rows=tuple(shown),
            columns=tuple(str(step) for step, _ in self._columns),
            values=tuple(tuple(column.get(row) for _, column in self._columns) for row in shown),
            row_label="layer",
            column_label="step",
            scale=scale,
            note="; ".join(notes),
        )

"""What is kept of a run: a few numbers of its loss, and the rules that spoke."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from nabla_core.numbers import json_number, number_from_json
from nabla_core.records import StepRecord

from ..readers.span import Span

__all__ = ["SCHEMA_VERSION", "RunSummary", "SummaryBuilder"]

SCHEMA_VERSION = "1.0"
_SMOOTHED_ROWS = 5
_MAX_POINTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run in a few numbers.

    Attributes:
        id: digest of the project, the log and the run's place in it; linting a log again replaces
            its summary.
        project: name of the project folder.
        source: the log.
        logged_utc: when the log was last written, ISO 8601.
        rows: rows with a loss.
        last_step: step of the last row.
        loss_column: how the log calls the loss.
        first_loss: first finite loss.
        best_loss: lowest finite loss.
        best_step: its step.
        last_loss: last loss; NaN if the run broke.
        best_val_loss: lowest validation loss; NaN without one.
        curve: ``(step, loss)`` at steps 1, 2, 5, 10, 20, 50, ...; each the median of five rows.
        rules: rules that spoke, from severity low on.
    """

    id: str
    project: str
    source: str
    logged_utc: str
    rows: int
    last_step: int
    loss_column: str
    first_loss: float
    best_loss: float
    best_step: int
    last_loss: float
    best_val_loss: float
    curve: tuple[tuple[int, float], ...] = ()
    rules: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        texts = {name: getattr(self, name) for name in _TEXTS}
        numbers = {name: json_number(getattr(self, name)) for name in _NUMBERS}
        return {
            "schema_version": SCHEMA_VERSION,
            **texts,
            **numbers,
            "curve": [[step, json_number(loss)] for step, loss in self.curve],
            "rules": list(self.rules),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, object]) -> RunSummary:
        """Undo :meth:`to_dict`.

        Raises:
            ValueError: it is no summary, or of another major version.
        """
        if str(stored.get("schema_version", "")).split(".")[0] != SCHEMA_VERSION.split(".")[0]:
            raise ValueError(f"schema version {stored.get('schema_version')!r}")
        texts = {name: str(stored.get(name, "")) for name in _TEXTS}
        numbers = {name: number_from_json(stored.get(name)) for name in _NUMBERS}
        curve, rules = stored.get("curve"), stored.get("rules")
        if not isinstance(curve, list) or not isinstance(rules, list) or len(curve) > _MAX_POINTS:
            raise ValueError("curve and rules must be lists")
        return cls(
            id=texts["id"],
            project=texts["project"],
            source=texts["source"],
            logged_utc=texts["logged_utc"],
            loss_column=texts["loss_column"],
            rows=int(numbers["rows"]),
            last_step=int(numbers["last_step"]),
            best_step=int(numbers["best_step"]),
            first_loss=numbers["first_loss"],
            best_loss=numbers["best_loss"],
            last_loss=numbers["last_loss"],
            best_val_loss=numbers["best_val_loss"],
            curve=tuple(_point(item) for item in curve),
            rules=tuple(str(rule) for rule in rules),
        )


_TEXTS = ("id", "project", "source", "logged_utc", "loss_column")
_NUMBERS = (
    "rows",
    "last_step",
    "first_loss",
    "best_loss",
    "best_step",
    "last_loss",
    "best_val_loss",
)


def _point(item: object) -> tuple[int, float]:
    if not isinstance(item, list) or len(item) != 2:
        raise ValueError("a point of the curve has a step and a loss")
    return int(number_from_json(item[0])), number_from_json(item[1])


@dataclass(slots=True)
class SummaryBuilder:
    """Collects a summary while records pass by; bounded, constant time per record."""

    rows: int = 0
    last_step: int = 0
    first_loss: float = math.nan
    best_loss: float = math.inf
    best_step: int = 0
    last_loss: float = math.nan
    best_val_loss: float = math.inf
    curve: list[tuple[int, float]] = field(default_factory=list)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_SMOOTHED_ROWS))
    _points: Iterator[int] = field(default_factory=lambda: _spaced())
    _next: int = 1

    def take(self, record: StepRecord) -> None:
        """Take a record in."""
        val_loss = record.signals.get("val_loss")
        if val_loss is not None and val_loss < self.best_val_loss:
            self.best_val_loss = val_loss
        loss = record.signals.get("loss")
        if loss is None:
            return
        self.rows += 1
        self.last_step = record.step
        self.last_loss = loss
        self._recent.append(loss)
        if loss < self.best_loss:
            self.best_loss, self.best_step = loss, record.step
        if self.first_loss != self.first_loss:
            self.first_loss = loss
        if record.step >= self._next:
            self._mark(record.step)

    def take_span(self, span: Span) -> None:
        """Take many rows in."""
        start = 0
        while start < len(span):
            stop = bisect_left(span.steps, self._next, start)  # a point of the curve
            if stop > start:
                self._take_between(span.part(start, stop))
            if stop < len(span):
                self.take(span.record(stop))
            start = stop + 1

    def _take_between(self, span: Span) -> None:
        losses = span.dense.get("loss")
        plain = losses is not None and math.isfinite(sum(losses)) and "val_loss" not in span.dense
        if losses is None or not plain or not self.rows:
            for record in span.records():
                self.take(record)
            return
        for value in span.sparse.get("val_loss", ()):
            if value is not None and value < self.best_val_loss:
                self.best_val_loss = value
        self.rows += len(losses)
        self.last_step, self.last_loss = span.steps[-1], losses[-1]
        self._recent.extend(losses[-_SMOOTHED_ROWS:])
        best = min(losses)
        if best < self.best_loss:
            self.best_loss, self.best_step = best, span.steps[losses.index(best)]

    def _mark(self, step: int) -> None:
        point = self._next
        while self._next <= step:
            point, self._next = self._next, next(self._points)
        if len(self.curve) < _MAX_POINTS:
            self.curve.append((point, median(self._recent)))


def _spaced() -> Iterator[int]:
    """Yield 2, 5, 10, 20, 50, ..."""
    for power in count():
        for factor in (2, 5, 10):
            yield factor * 10**power

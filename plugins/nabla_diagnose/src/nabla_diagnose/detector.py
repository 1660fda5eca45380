"""The detector of a session: judges records one by one, or the rows of a log many at once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.report import Section

from .calm import Calm
from .chart import BLOCK_ROWS
from .judged import apart, is_judged
from .readers.span import Span
from .row_judge import MOST_OWED, NOTHING, RowJudge
from .stretch import Stretch, are_finite

__all__ = ["RunDetector"]


class RunDetector(RowJudge):
    """Judges one run, record by record, in constant time and bounded memory."""

    deferrable = True  # a run is judged over many steps: some of them may come a little later

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge a record. Most rows only wait until their block is complete."""
        if not record.layers:
            issues = self.row(record.step, record.signals)
            if issues is not None:
                return issues
        return self.look(record)

    def look(self, record: StepRecord) -> list[Issue]:
        """Judge a record at once, after those that wait."""
        self.settle()
        self._course.take(record.step, record.signals)
        return self._judge(record)

    def span(self, span: Span) -> Iterator[Issue]:
        """Judge many rows: the issues are those of :meth:`step`, row by row.

        Rows of which no check needs a closer look enter the chart a block at a time.
        """
        self.settle()
        self._course.take_span(span)
        span = span.of(is_judged)
        alone, finite = deque(span.sparse_rows()), are_finite(span.dense)
        row = 0
        while row < len(span.steps):
            if self.chart.room() == BLOCK_ROWS:
                reached, issues = self._leap(span, row, alone[0] if alone else len(span), finite)
                yield from issues
                if reached > row:
                    row = reached
                    continue
            end, extra = self._reach(span, row, alone)
            stretch = None if extra is None else self._calm_stretch(span, slice(row, end), finite)
            if stretch is None or extra is None:
                for place in range(row, end):
                    yield from self._judge(span.record(place))
            else:
                yield from self._pass_over(stretch, extra)
            row = end

    def _leap(self, span: Span, row: int, end: int, finite: bool) -> tuple[int, list[Issue]]:
        """Judge whole blocks of calm rows while all checks need no more than their losses.

        Returns:
            The row that was reached, and what was found.
        """
        end = min(end, row + BLOCK_ROWS * self._blocks_alone())
        if end - row < BLOCK_ROWS:
            return row, []
        stretch, calm = self._between(span, slice(row, end), finite)
        if stretch is None or calm is None or not calm.holds_rates(stretch):
            return row, []
        chart, losses, found, taken = self.chart, stretch.columns["loss"], [], 0
        before, first = chart.step, chart.rows
        while taken + BLOCK_ROWS <= min(len(losses), self._until - first):
            rows = slice(taken, taken + BLOCK_ROWS)
            block = losses[rows]
            if not calm.allows(max(block)):
                break
            last = {name: values[rows.stop - 1] for name, values in stretch.columns.items()}
            chart.take_losses(stretch.steps[rows], block, last)
            found += self._block()
            calm.put_under(self._under_level, chart)
            taken = rows.stop
        if taken:
            self._owe(stretch.first(taken), before)
        return row + taken, self._note(found) if found else found

    def _blocks_alone(self) -> int:
        """Return for how many blocks no check needs more than the losses, at most 64."""
        waking = [
            idle
            for check, idle in zip(self._by_block, self._idle, strict=True)
            if check.looks_back and idle < math.inf
        ]
        blocks = min(waking, default=math.inf) - self.chart.block_count - 1
        return int(min(max(blocks, 0), MOST_OWED))

    def _reach(
        self, span: Span, row: int, alone: deque[int]
    ) -> tuple[int, Mapping[str, float] | None]:
        """Return the end of the rows that may be judged together, and what the last has besides.

        ``None`` if it has what must be looked at; it then stands alone.
        """
        end = min(len(span.steps), row + self.chart.room())
        if not alone or alone[0] >= end:
            return end, NOTHING
        plain, extra = apart(span.extra(alone[0]))
        if not plain and self.chart.seen.issuperset(extra):
            return alone.popleft() + 1, extra
        if alone[0] > row:
            return alone[0], NOTHING
        return alone.popleft() + 1, None

    def _calm_stretch(self, span: Span, rows: slice, finite: bool) -> Stretch | None:
        """Return the rows if no check needs a closer look at one of them."""
        stretch, calm = self._between(span, rows, finite)
        return stretch if stretch and calm and calm.holds(stretch) else None

    def _between(self, span: Span, rows: slice, finite: bool) -> tuple[Stretch | None, Calm | None]:
        """Return rows if they are finite and later than the ones before, and their bounds."""
        if "val_loss" in span.dense or span.steps[rows.start] <= self.chart.step:
            return None, None
        calm = self._calm_for(tuple(span.dense), self.chart.room())
        if calm is None:
            return None, None
        columns = {name: values[rows] for name, values in span.dense.items()}
        if not finite and not are_finite(columns):
            return None, None
        return Stretch(span.steps[rows], columns), calm

    def finish(self) -> Iterable[Issue]:
        """Judge the whole run."""
        self.settle()
        found = [issue for check in self._checks for issue in check.finish(self.chart)]
        return self._note(found)

    def sections(self) -> Iterable[Section]:
        """Show the course of the run."""
        self.settle()
        return self._course.sections()

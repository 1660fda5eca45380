"""The detector of a session: keeps the chart and asks each check at its pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.report import Section
from nabla_core.rule import Rule

from .chart import BLOCK_ROWS, Chart
from .checks.check import Check, LayerCheck
from .consequences import Consequences
from .course import Course
from .layer_table import LayerTable
from .options import DiagnoseOptions
from .readers.span import Span
from .stretch import Stretch, are_finite, stretch_of

__all__ = ["RunDetector"]


class RunDetector:
    """Judges one run, record by record, in constant time and bounded memory.

    Args:
        checks: what to decide; they must not have seen another run.
        options: what the user declared about the run.
    """

    deferrable = True  # a run is judged over many steps: some of them may come a little later

    def __init__(self, checks: Iterable[Check], options: DiagnoseOptions) -> None:
        self._checks = tuple(checks)
        self.rules: tuple[Rule, ...] = tuple(
            dict.fromkeys(rule for check in self._checks for rule in check.rules)
        )
        self.chart = Chart(options)
        self._table = LayerTable()
        self._consequences = Consequences()
        self._course = Course()
        self._ask(self._overriding("row"), self._overriding("block"))
        self._by_record = self._overriding("record")
        self._by_validation = self._overriding("validation")
        self._by_layer = [check for check in self._checks if isinstance(check, LayerCheck)]

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge a record. Most rows only enter the chart and pass a few comparisons."""
        self._course.take(record)
        return self._judge(record)

    def _judge(self, record: StepRecord) -> list[Issue]:
        chart = self.chart
        closed = chart.take(record)
        issues = self._looked_at()
        if chart.broken is not None:
            return self._note(issues)
        if closed:
            issues += self._block()
        value = record.signals.get("val_loss")
        if value is not None:
            for check in self._by_validation:
                issues += check.validation(chart, value)
        if record.layers:
            self._table.take(record, chart.now)
            self._course.take_layers(record.step, self._table)
            for layer_check in self._by_layer:
                issues += layer_check.layers(chart, self._table)
        return self._note(issues) if issues else issues

    def _looked_at(self) -> list[Issue]:
        """Ask the checks that look at every record, and at every row."""
        chart = self.chart
        issues: list[Issue] = []
        if chart.other_losses:
            for check in self._by_record:
                issues += check.record(chart)
        if chart.loss is not None:
            for check in self._by_row:
                issues += check.row(chart)
        return issues

    def span(self, span: Span) -> Iterator[Issue]:
        """Judge many rows: the issues are those of :meth:`step`, row by row.

        Rows of which no check needs a closer look enter the chart a block at a time.
        """
        self._course.take_span(span)
        alone, finite = deque(span.sparse_rows()), are_finite(span.dense)
        row = 0
        while row < len(span):
            end = min(len(span), row + self.chart.room())
            is_alone = bool(alone) and alone[0] == row
            if is_alone:
                end = alone.popleft() + 1
            elif alone:
                end = min(end, alone[0])
            stretch = None if is_alone else self._calm_stretch(span, slice(row, end), finite)
            if stretch is None:
                for place in range(row, end):
                    yield from self._judge(span.record(place))
            else:
                yield from self._pass_over(stretch)
            row = end

    def _calm_stretch(self, span: Span, rows: slice, finite: bool) -> Stretch | None:
        """Return the rows if no check needs a closer look at one of them."""
        chart, dense = self.chart, span.dense
        if chart.rows < BLOCK_ROWS or chart.broken is not None:
            return None
        known = "loss" in dense and chart.seen.issuperset(dense)
        if not known or "val_loss" in dense or span.steps[rows.start] <= chart.now.step:
            return None
        columns = {name: values[rows] for name, values in dense.items()}
        if not finite and not are_finite(columns):
            return None
        stretch = stretch_of(span.steps[rows], columns)
        for is_calm in self._calm_questions:
            if not is_calm(chart, stretch):
                return None
        return stretch

    def _pass_over(self, stretch: Stretch) -> Iterable[Issue]:
        for pass_over in self._passing_over:
            pass_over(self.chart, stretch)
        issues = self._block() if self.chart.take_stretch(stretch) else []
        return self._note(issues) if issues else issues

    def _block(self) -> list[Issue]:
        found: list[Issue] = []
        for check in self._by_block:
            found += check.block(self.chart)
        if any(check.done for check in (*self._by_block, *self._by_row)):
            self._ask(
                [check for check in self._by_row if not check.done],
                [check for check in self._by_block if not check.done],
            )
        return found

    def _ask(self, by_row: list[Check], by_block: list[Check]) -> None:
        """Say which checks are asked; their methods are looked up once."""
        self._by_row, self._by_block = by_row, by_block
        self._calm_questions = [check.is_calm for check in by_row]
        overriding = self._overriding("pass_over")
        self._passing_over = [check.pass_over for check in by_row if check in overriding]

    def finish(self) -> Iterable[Issue]:
        """Judge the whole run."""
        found = [issue for check in self._checks for issue in check.finish(self.chart)]
        return self._note(found)

    def sections(self) -> Iterable[Section]:
        """Show the course of the run."""
        return self._course.sections()

    # ------------------------------------------------------------------ private
    def _note(self, issues: list[Issue]) -> list[Issue]:
        self.chart.found.update(issue.rule for issue in issues)
        return self._consequences.mark(issues)

    def _overriding(self, method: str) -> list[Check]:
        plain = getattr(Check, method)
        return [check for check in self._checks if getattr(type(check), method) is not plain]

"""The detector of a session: keeps the chart and asks each check at its pace."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.rule import Rule

from .chart import Chart
from .checks.check import Check, LayerCheck
from .consequences import Consequences
from .layer_table import LayerTable
from .options import DiagnoseOptions

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
        self._by_row = self._overriding("row")
        self._by_block = self._overriding("block")
        self._by_validation = self._overriding("validation")
        self._by_layer = [check for check in self._checks if isinstance(check, LayerCheck)]

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge a record. Most rows only enter the chart and pass a few comparisons."""
        chart = self.chart
        closed = chart.take(record)
        issues: list[Issue] = []
        if chart.loss is not None:
            for check in self._by_row:
                issues += check.row(chart)
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
            for layer_check in self._by_layer:
                issues += layer_check.layers(chart, self._table)
        return self._note(issues) if issues else issues

    def _block(self) -> list[Issue]:
        found = [issue for check in self._by_block for issue in check.block(self.chart)]
        if any(check.done for check in self._by_row):
            self._by_row = [check for check in self._by_row if not check.done]
        return found

    def finish(self) -> Iterable[Issue]:
        """Judge the whole run."""
        found = [issue for check in self._checks for issue in check.finish(self.chart)]
        return self._note(found)

    # ------------------------------------------------------------------ private
    def _note(self, issues: list[Issue]) -> list[Issue]:
        self.chart.found.update(issue.rule for issue in issues)
        return self._consequences.mark(issues)

    def _overriding(self, method: str) -> list[Check]:
        plain = getattr(Check, method)
        return [check for check in self._checks if getattr(type(check), method) is not plain]

"""RUN901 and RUN902: what the log itself lacks."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import Chart, Moment
from ..rules.families import NOT_ENOUGH_EVIDENCE, SEVERAL_RUNS_IN_ONE_LOG
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["EvidenceCheck"]

_ENOUGH_ROWS = 30


class EvidenceCheck(Check):
    """Says what cannot be decided."""

    rules = (NOT_ENOUGH_EVIDENCE, SEVERAL_RUNS_IN_ONE_LOG)

    def __init__(self) -> None:
        self._highest = -1
        self._lowest: int | None = None
        self._told = False

    def row(self, chart: Chart) -> Iterable[Issue]:
        """Notice that the steps start again."""
        step = chart.step
        if self._lowest is None:
            self._lowest = step
        if step > self._highest:
            self._highest = step
            return ()
        if self._told or step > self._lowest:
            return ()
        self._told = True
        return (self._again(chart, step),)

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`; calm rows are later than the present one."""
        return chart.step >= self._highest

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        self._highest = stretch.steps[-1]

    def finish(self, chart: Chart) -> Iterable[Issue]:
        """Say that a run without findings was too short for any."""
        rows = len(chart.first) if chart.rows < 10 else chart.rows
        if chart.found - {SEVERAL_RUNS_IN_ONE_LOG.id} or rows >= _ENOUGH_ROWS:
            return
        yield verdict(
            NOT_ENOUGH_EVIDENCE,
            chart,
            Finding(
                message=f"The run has {rows} rows with a loss; a verdict needs {_ENOUGH_ROWS}.",
                onset=Moment(max(0, chart.now.row), chart.step),
                confidence=1.0,
                evidence={"rows": Quantity(value=rows, unit="rows", limit=_ENOUGH_ROWS)},
            ),
        )

    def _again(self, chart: Chart, step: int) -> Issue:
        return verdict(
            SEVERAL_RUNS_IN_ONE_LOG,
            chart,
            Finding(
                message=f"Step {step} follows step {self._highest} in row {chart.now.row}: the "
                "steps start again.",
                onset=chart.now,
                confidence=1.0,
                evidence={"before": self._highest, "after": step},
            ),
        )

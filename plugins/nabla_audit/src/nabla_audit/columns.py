"""AUD504: input columns that carry nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.batches import BatchWatch, ColumnFacts

from .rules.data import COLUMN_WITHOUT_INFORMATION

__all__ = ["ColumnDetector"]


class ColumnDetector:
    """Judges the columns of each root module's input once."""

    rules = (COLUMN_WITHOUT_INFORMATION,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._columns = facts.gather(BatchWatch).columns

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what was looked at since the last step."""
        if not self._columns:
            return ()
        finite = math.isfinite(record.signals.get("loss", 0.0))
        found = [issue for facts in self._columns for issue in _judge(facts, record.step, finite)]
        self._columns.clear()
        return found


def _judge(facts: ColumnFacts, step: int, loss_is_finite: bool) -> Iterator[Issue]:
    if facts.broken:
        story = "the loss is finite all the same" if loss_is_finite else "so is the loss"
        severity = Severity.INFO if loss_is_finite else Severity.HIGH
        yield _issue(facts, facts.broken, f"held no finite value ({story})", step, severity)
    constant = tuple(column for column in facts.constant if column not in facts.broken)
    if constant and len(constant) < facts.columns:
        yield _issue(facts, constant, "held one single value", step, Severity.INFO)


def _issue(
    facts: ColumnFacts, columns: tuple[int, ...], what: str, step: int, severity: Severity
) -> Issue:
    named = ", ".join(map(str, columns[:5])) + (", ..." if len(columns) > 5 else "")
    return COLUMN_WITHOUT_INFORMATION.issue(
        f"{len(columns)} of {facts.columns} input columns of {facts.module} ({named}) {what} in "
        f"all {facts.rows} rows of its first {facts.batches} batches.",
        step=step,
        where=Location(module=facts.module, parameter=f"{facts.argument}, {what.split(' (')[0]}"),
        phase="data",
        severity=severity,
        columns=Quantity(value=len(columns), unit="columns", limit=0),
        rows=facts.rows,
        first_column=columns[0],
    )

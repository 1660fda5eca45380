"""Judges the rows of one run: those that no check needs to see wait, and are judged together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import compress, count, repeat
from operator import attrgetter, gt, le

from nabla_core.issue import Issue
from nabla_core.records import StepRecord

from .calm import Calm
from .calm_rows import CalmRows
from .chart import Chart
from .checks.check import Check, LayerCheck
from .consequences import Consequences
from .course import Course
from .judged import apart, is_judged
from .layer_table import LayerTable
from .options import DiagnoseOptions
from .pace import pace_of
from .stretch import Stretch, joined

__all__ = ["MOST_OWED", "NOTHING", "RowJudge"]

MOST_OWED = 64
"""Blocks of which the chart takes only the losses until somebody needs the rest."""
NOTHING: Mapping[str, float] = {}
_MOST_KEPT = 640
"""Rows whose losses alone are in the chart, likewise."""
_CLEARED_BLOCKS = 4
"""In one of so many blocks, checks that are done are dropped."""
_is_done = attrgetter("done")


class RowJudge:
    """Keeps the chart of one run and asks each check at its pace.

    A row between the bounds of all checks (:class:`~nabla_diagnose.calm.Calm`) waits until its
    block is complete; any other one is judged at once, after those that wait.

    Args:
        checks: what to decide; they must not have seen another run.
        options: what the user declared about the run.

    Attributes:
        rules: what the checks decide.
        chart: the course of the run.
        waiting: rows that wait.
    """

    def __init__(self, checks: Iterable[Check], options: DiagnoseOptions) -> None:
        self._checks = checks = tuple(checks)
        self._pace = pace = pace_of(tuple(map(type, checks)))
        self.rules = pace.rules
        self.chart = Chart(options)
        self._table = LayerTable()
        self._consequences = Consequences()
        self._course = Course()
        self.waiting = CalmRows()
        self._tense = -1
        self._names: tuple[str, ...] = ()
        self._calm: Calm | None = None
        self._until = math.inf
        self._owed: list[Stretch] = []
        self._owed_from = self._kept_from = 0
        self._due: list[int] = []
        self._idle: list[float] = []
        self._alarm = 0.0
        self._resting: frozenset[int] = frozenset()
        self._first_blocks: list[float] = []
        self._ask(pace.those("row", checks), pace.those("block", checks))
        self._rouse()
        self._by_record = pace.those("record", checks)
        self._by_validation = pace.those("validation", checks)
        self._by_layer = [
            check for check in pace.those("layers", checks) if isinstance(check, LayerCheck)
        ]

    def row(self, step: int, signals: Mapping[str, float | None]) -> list[Issue] | None:
        """Judge a row that no check needs to look at; ``None`` if one does, and nothing is done.

        Args:
            step: its step.
            signals: what it logs; ``None`` is not measured.
        """
        waiting = self.waiting
        if not waiting.room and not self._open(signals):
            return None
        if waiting.take(step, signals):
            return [] if waiting.room else self.complete()
        plain, extra = apart(signals)
        if len(plain) == len(signals) or not self.chart.seen.issuperset(extra):
            return None
        if not waiting.take(step, plain):
            return None
        if not any(map(is_judged, signals.keys() - plain.keys())):
            waiting.learn(tuple(signals))
        return [] if waiting.room and not extra else self.complete(extra)

    def complete(self, extra: Mapping[str, float] = NOTHING) -> list[Issue]:
        """Judge the rows that are waiting, at least one, and go on with the next ones.

        Args:
            extra: what the last of them has besides; known signals of held-out data.
        """
        issues = self._pass_on(extra)
        self._reopen(self._names)
        return issues

    def settle(self) -> None:
        """Let the rows that wait for the end of their block into the chart."""
        waiting = self.waiting
        if len(waiting.steps) > waiting.passed:
            self._pass_on(NOTHING)
        self._catch_up()
        waiting.close()

    def _judge(self, record: StepRecord) -> list[Issue]:
        chart = self.chart
        self._catch_up()
        self._rouse()
        closed = chart.take(record)
        if record.layers:
            self._table.take(record, chart.now)
            chart.most_changed = self._table.most_changed()
        issues = self._looked_at()
        if chart.broken is not None:
            return self._note(issues) if issues else issues
        if closed:
            issues += self._block()
        value = record.signals.get("val_loss")
        if value is not None:
            for check in self._by_validation:
                issues += check.validation(chart, value)
        if record.layers:
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

    def _open(self, signals: Mapping[str, float | None]) -> bool:
        """Let rows with these signals wait, if no check needs to see each of the next ones."""
        if self._tense == self.chart.block_count or self.chart.is_beginning():
            return False
        return self._reopen(tuple(apart(signals)[0]))

    def _reopen(self, names: tuple[str, ...]) -> bool:
        chart = self.chart
        room = chart.room()
        calm = self._calm_for(names, room)
        if calm is None:
            return False
        self.waiting.open(calm, names, chart.step, room)
        return True

    def _calm_for(self, names: tuple[str, ...], room: int) -> Calm | None:
        """Return the bounds between which no check looks at so many rows with these signals.

        ``None`` if one looks at them all. That is asked once in a block.
        """
        chart, calm = self.chart, self._calm
        if self._tense == chart.block_count or (not chart.block_count and chart.is_beginning()):
            return None
        if calm is None or self._names != names or chart.rows + room > self._until:
            calm = self._narrowed(names)
            if calm is None:
                return None
        calm.put_under(self._under_level, chart)
        return calm

    def _narrowed(self, names: tuple[str, ...]) -> Calm | None:
        """Ask every check for its bounds."""
        chart = self.chart
        if chart.broken is not None or "loss" not in names or not chart.seen.issuperset(names):
            return None
        self._catch_up()
        self._names, calm = names, Calm(names)
        narrowed = all(check.narrow(chart, calm) for check in self._by_row)
        self._until = chart.rows + calm.rows
        if not narrowed or chart.rows + chart.room() > self._until:
            self._tense, self._calm = chart.block_count, None
            return None
        self._calm = calm
        return calm

    def _pass_on(self, extra: Mapping[str, float]) -> list[Issue]:
        """Judge the rows that are waiting; of what they log beside the loss, the last row now."""
        waiting = self.waiting
        if not waiting.passed:
            self._kept_from = self.chart.step
        steps, losses, last = waiting.pass_on()
        if extra:
            self._course.take(steps[-1], extra)
        closed = self.chart.take_losses(steps, losses, last)
        if waiting.passed >= _MOST_KEPT:
            self._catch_up()
        return self._let_in(closed, extra)

    def _pass_over(self, stretch: Stretch, extra: Mapping[str, float]) -> list[Issue]:
        """Judge calm rows of a span that end within the present block."""
        chart, columns = self.chart, stretch.columns
        self._owe(stretch, chart.step)
        last = {name: values[-1] for name, values in columns.items()}
        return self._let_in(chart.take_losses(stretch.steps, columns["loss"], last), extra)

    def _let_in(self, closed: bool, extra: Mapping[str, float]) -> list[Issue]:
        """Ask the checks about calm rows that are in the chart, and what the last has besides."""
        chart = self.chart
        issues = self._beside(extra) if extra else []
        if closed:
            issues += self._block()
        value = extra.get("val_loss")
        if value is not None:
            for check in self._by_validation:
                issues += check.validation(chart, value)
        return self._note(issues) if issues else issues

    def _beside(self, extra: Mapping[str, float]) -> list[Issue]:
        """Let what the last row has besides into the chart."""
        chart = self.chart
        self._catch_up()
        chart.signals = {**chart.signals, **extra}
        found: list[Issue] = []
        if chart.other_losses:
            for check in self._by_record:
                found += check.record(chart)
        return found

    def _owe(self, stretch: Stretch, before: int) -> None:
        """Remember calm rows, after a step, of which the chart takes only the losses."""
        if len(self._owed) >= MOST_OWED:
            self._catch_up()
        if not self._owed:
            self._owed_from = before
        self._owed.append(stretch)

    def _catch_up(self) -> None:
        """Tell the chart and the checks the rest of the rows that nobody looked at."""
        if self._owed:
            stretch, self._owed = joined(self._owed), []
            self._take_rest(stretch, self._owed_from)
        if self.waiting.passed:
            stretch = self.waiting.drain()
            self._course.take_columns(stretch.steps, stretch.columns)
            self._take_rest(stretch, self._kept_from)

    def _take_rest(self, stretch: Stretch, before: int) -> None:
        self.chart.take_rest(stretch, before)
        for pass_over in self._passing_over:
            pass_over(self.chart, stretch)

    def _block(self) -> list[Issue]:
        found: list[Issue] = []
        chart, idle, following = self.chart, self._idle, self.chart.block_count + 1
        changes = following > self._alarm
        for place in _not_after(idle, following - 1) if changes else self._due:
            check = self._by_block[place]
            if check.looks_back and check.needs_rest(chart):
                self._catch_up()
            found += check.block(chart)
            if place in self._resting:
                idle[place] = check.idle_until(chart)
                changes = changes or idle[place] > following
        if changes:
            self._due = _not_after(idle, following)
            self._alarm = min(compress(idle, map(gt, idle, repeat(following))), default=math.inf)
        if not following % _CLEARED_BLOCKS and any(map(_is_done, self._asked)):
            self._drop_done()
        return found

    def _drop_done(self) -> None:
        """Ask those no more that are done; what the others need stays as it is."""
        self._catch_up()
        left = [place for place, check in enumerate(self._by_block) if not check.done]
        self._idle, self._alarm = [self._idle[place] for place in left], 0.0
        self._ask(
            [check for check in self._by_row if not check.done],
            [self._by_block[place] for place in left],
        )

    def _ask(self, by_row: list[Check], by_block: list[Check]) -> None:
        """Say which checks are asked; their methods are looked up once."""
        self._by_row, self._by_block = by_row, by_block
        self._asked = tuple(dict.fromkeys((*by_row, *by_block)))
        self._first_blocks = [check.first_block for check in by_block]
        self._under_level = [check.ceilings for check in self._those("ceilings")]
        self._passing_over = [check.pass_over for check in self._those("pass_over")]
        resting = set(self._those("idle_until"))
        self._resting = frozenset(place for place, check in enumerate(by_block) if check in resting)

    def _those(self, method: str) -> list[Check]:
        """Return the checks that are asked and have a method of their own."""
        asked = set(self._asked)
        return [check for check in self._pace.those(method, self._checks) if check in asked]

    def _rouse(self) -> None:
        """Forget the bounds of the rows, and until when checks are idle."""
        self._calm, self._alarm = None, 0.0
        self._idle = self._first_blocks.copy()

    def _note(self, issues: list[Issue]) -> list[Issue]:
        self.chart.found.update(issue.rule for issue in issues)
        return self._consequences.mark(issues)


def _not_after(idle: list[float], block: int) -> list[int]:
    """Return the places of those that are idle until that block at the latest."""
    return list(compress(count(), map(le, idle, repeat(block))))

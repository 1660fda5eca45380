"""The detector of a live loop: one optimizer's steps are the rows of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from nabla_core.issue import Issue
from nabla_core.records import StepRecord

from .checks.check import Check
from .detector import RunDetector
from .options import DiagnoseOptions

__all__ = ["LiveDetector", "Probe", "aligned"]


class Measured(Protocol):
    """What a probe measured of one step."""

    update_ratio: float | None
    columns: dict[str, dict[str, float]]


class Probe(Protocol):
    """Measures what a live loop does not give by itself."""

    def take(self) -> Measured:
        """Return what was measured since the last call."""


class LiveDetector(RunDetector):
    """Judges the steps of the first optimizer of a loop.

    A second optimizer in the same step makes the loop one of rivals: its losses may rise.

    Attributes:
        probe: measures layers and updates, if anybody asked for that.
    """

    def __init__(self, checks: Iterable[Check], options: DiagnoseOptions) -> None:
        super().__init__(checks, options)
        self.probe: Probe | None = None
        self._last = -1

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge a step, with what was measured of it."""
        if record.step == self._last:
            self.settle()
            self.chart.judged = False
            return ()
        self._last = record.step
        if self.probe is None and self.waiting.take(record.step, record.signals):
            return () if self.waiting.room else self.complete()
        if record.layers:  # ranges, for other rules
            record = record._replace(layers={}, layout=())
        return super().step(record if self.probe is None else self._measured(record, self.probe))

    def steps(self, records: Sequence[StepRecord]) -> list[Issue]:
        """Judge several steps as :meth:`step` would one by one."""
        found: list[Issue] = []
        done = 0
        while done < len(records):
            taken = 0
            if self.probe is None and records[done].step != self._last:
                taken = self.waiting.take_all(records[done:] if done else records)
            if not taken:
                found += self.step(records[done])
                done += 1
                continue
            done += taken
            self._last = records[done - 1].step
            if not self.waiting.room:
                found += self.complete()
        return found

    def note(self, signals: Mapping[str, float]) -> list[Issue]:
        """Judge what the user logs besides, such as a validation loss."""
        record = StepRecord(step=max(0, self._last), time_s=0.0, signals=signals)
        return list(super().step(record))

    def use(self, probe: Probe) -> None:
        """Have layers measured, and see every step from now on."""
        self.probe = probe
        self.deferrable = False  # a measurement belongs to the step that comes next

    @staticmethod
    def _measured(record: StepRecord, probe: Probe) -> StepRecord:
        measured = probe.take()
        signals = dict(record.signals)
        if measured.update_ratio is not None:
            signals["update_ratio"] = measured.update_ratio
        if not measured.columns:
            return record._replace(signals=signals)
        layout = tuple(dict.fromkeys(name for c in measured.columns.values() for name in c))
        layers = aligned(measured.columns, layout)
        return record._replace(signals=signals, layers=layers, layout=layout)


def aligned(
    columns: Mapping[str, Mapping[str, float]], layout: tuple[str, ...]
) -> dict[str, list[float]]:
    """Return each measurement as a list along ``layout``; NaN where a layer has none."""
    missing = float("nan")
    return {
        name: [column.get(layer, missing) for layer in layout] for name, column in columns.items()
    }

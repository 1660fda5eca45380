"""Judges a run by its records, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from nabla_core.config import Config
from nabla_core.host import PluginHost, default_host
from nabla_core.issue import Issue
from nabla_core.layers import Layer, environment_layer, file_layer, find_file
from nabla_core.records import StepRecord
from nabla_core.session import Session, SessionOptions

from .calm_rows import CalmRows
from .detector import RunDetector
from .readers.span import Span, spans_of
from .run_report import RunReport
from .source import LogSource

__all__ = ["Hints", "RunSession", "lint_records", "run_config"]

Hints = Mapping[str, object]
"""What is declared about a run: keys of :class:`~nabla_diagnose.options.DiagnoseOptions`."""


def run_config(host: PluginHost, hints: Hints | None = None, mute: Iterable[str] = ()) -> Config:
    """Return the configuration in force, with the hints and the muted rules of a call on top.

    Raises:
        ConfigError: a hint is unknown or of the wrong type, or the configuration file is wrong.
    """
    import os

    path = find_file(Path.cwd())
    layers = [file_layer(path)] if path else []
    layers.append(environment_layer(os.environ, host.options))
    base = Config(host, layers)
    given: dict[str, object] = {}
    if hints:
        given["diagnose"] = {key: value for key, value in hints.items() if value is not None}
    muted = sorted(mute)
    if muted:
        given["ignore"] = [*base.core.ignore, *muted]
    return Config(host, [*layers, Layer(source="call", style="cli", values=given)])


class RunSession:
    """A session that takes the records of one run, in order, and ends in a report.

    Args:
        name: how reports call the source, e.g. the name of a log.
        config: effective configuration; see :func:`run_config`.
        command: how reports call what was run.
    """

    def __init__(
        self, name: str = "records", config: Config | None = None, command: str = "nabla.lint"
    ) -> None:
        host = default_host()
        self.source = LogSource(name=name)
        self.session = Session(
            host=host,
            config=run_config(host) if config is None else config,
            options=SessionOptions(command=command, isolated=True),
        )
        self.session.connect(self.source)
        self._report: RunReport | None = None
        self.waiting: CalmRows | None = None
        self._judge_alone: RunDetector | None = None

    def take(self, record: StepRecord) -> list[Issue]:
        """Judge one record and return the issues that it raised, each once."""
        self.source.note(record)
        return self.session.step(record)

    def take_row(self, step: int, signals: Mapping[str, float | None]) -> list[Issue] | None:
        """Judge a row without layers that nobody needs to see as a record.

        Args:
            step: its step.
            signals: what it logs; ``None`` is not measured.

        Returns:
            The issues that it raised, each once; ``None`` if others want to see it, too: it has to
            be given to :meth:`take`.
        """
        self._judge_alone = detector = self._only_detector()
        self.waiting = None
        if detector is None:
            return None
        try:
            found = detector.row(step, signals)
        except Exception as error:  # as the session does: a check that raises is told, and retired
            self.session.retire(detector, error)
            return []
        if found is None:
            return self._look(detector, step, signals)
        self.waiting = detector.waiting
        return self._kept(step, found)

    def complete_rows(self, step: int) -> list[Issue]:
        """Judge the rows of a block that is complete; as :meth:`take_row`, of its last one."""
        detector = self._judge_alone
        if detector is None:
            return []
        try:
            found = detector.complete()
        except Exception as error:  # as above
            self.session.retire(detector, error)
            return []
        self.session.last_step = max(step, self.session.last_step)
        return self._kept(step, found) if found else found

    def settle(self) -> None:
        """Let rows that wait for others be judged: another detector is about to come."""
        for detector in self.session.detectors:
            if isinstance(detector, RunDetector):
                detector.settle()

    def take_span(self, span: Span) -> None:
        """Judge many rows at once, with the same outcome as row by row."""
        detector = self._only_detector()
        if detector is None:
            for record in span.records():
                self.take(record)
            return
        self.source.note_span(span)
        self.session.last_step = max(self.session.last_step, span.steps[-1])
        try:
            for issue in detector.span(span):
                self.session.add(issue)
        except Exception as error:  # as the session does: a check that raises is told, and retired
            self.session.retire(detector, error)

    def _look(
        self, detector: RunDetector, step: int, signals: Mapping[str, float | None]
    ) -> list[Issue]:
        """Judge a row that has to be looked at."""
        known = {name: float(value) for name, value in signals.items() if value is not None}
        record = StepRecord(step=step, time_s=0.0, signals=known)
        self.source.note(record)
        try:
            found = detector.look(record)
        except Exception as error:  # as above
            self.session.retire(detector, error)
            return []
        self.waiting = detector.waiting
        return self._kept(step, found)

    def _kept(self, step: int, found: list[Issue]) -> list[Issue]:
        """Note a step, and add what was found to the session; return what is new."""
        session = self.session
        if step > session.last_step:
            session.last_step = step
        if not found:
            return found
        new = map(session.add, found)
        return [issue for issue in new if issue is not None]

    def _only_detector(self) -> RunDetector | None:
        """Return the detector of this plugin, if no other one wants to see the records."""
        detectors = self.session.detectors
        if len(detectors) != 1 or not isinstance(detectors[0], RunDetector):
            return None
        return detectors[0]

    def finish(self) -> RunReport:
        """Judge the whole run; the same report every time."""
        if self._report is None:
            self.source.tell_absent(self.session)
            self._report = RunReport.of(self.session.finish())
        return self._report


def lint_records(
    records: Iterable[StepRecord],
    hints: Hints | None = None,
    *,
    name: str = "records",
    config: Config | None = None,
) -> RunReport:
    """Judge a run by its records.

    Args:
        records: in the order in which they were logged.
        hints: what is declared about the run; left out when ``config`` is given.
        name: how the report calls the source.
        config: effective configuration, e.g. that of a command.

    Raises:
        ConfigError: a hint is unknown or of the wrong type.
    """
    run = RunSession(name, config or run_config(default_host(), hints))
    for part in spans_of(records):
        if isinstance(part, Span):
            run.take_span(part)
        else:
            run.take(part)
    return run.finish()

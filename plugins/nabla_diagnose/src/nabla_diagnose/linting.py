"""Logs to reports: each run of a log is judged apart, then the reports are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nabla_core.config import Config
from nabla_core.errors import InputError
from nabla_core.host import default_host
from nabla_core.issue import Quantity
from nabla_core.layers import Layer
from nabla_core.redaction import redact
from nabla_core.severity import Severity

from .engine import RunSession
from .history.store import project_of, run_id
from .history.summary import RunSummary, SummaryBuilder
from .options import DiagnoseOptions
from .readers.log import LogRun, read_runs
from .readers.mapping import ReadOptions
from .readers.trainer_state import planned_steps
from .rules.families import SEVERAL_RUNS_IN_ONE_LOG
from .run_report import RunReport

__all__ = ["LintRequest", "LintedRun", "lint_log"]

_MAX_RUNS = 100
_PLANNED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRequest:
    """How logs are to be judged.

    Attributes:
        config: effective configuration.
        columns: signal to column, on top of what the configuration says.
        command: how reports call what was run.
    """

    config: Config
    columns: Mapping[str, str] = field(default_factory=dict)
    command: str = "nabla.lint"

    @property
    def read_options(self) -> ReadOptions:
        """Which column is which."""
        configured = self.config.options(DiagnoseOptions).columns
        return ReadOptions(columns={**configured, **self.columns})


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedRun:
    """One run of a log with its report.

    Attributes:
        label: how tables call it.
        log: the run as it was read; its records are used up.
        report: the verdict.
        summary: a few numbers for the history.
    """

    label: str
    log: LogRun
    report: RunReport
    summary: RunSummary

    @property
    def was_judged(self) -> bool:
        """Whether there was a loss to judge, or something was found anyway."""
        spoke = any(issue.severity > Severity.INFO for issue in self.report.issues)
        return self.summary.rows > 0 or spoke


def lint_log(
    path: Path, request: LintRequest, progress: Callable[[int], None] | None = None
) -> list[LintedRun]:
    """Judge every run of a log.

    Args:
        path: the log.
        request: how it is to be judged.
        progress: hears, now and then, how many rows of a run were read.

    Raises:
        InputError: it cannot be read, or holds no loss.
    """
    linted: list[LintedRun] = []
    pending: _Pending | None = None
    for log in read_runs(path, request.read_options):
        if pending is not None:
            linted.append(pending.close())
        if len(linted) == _MAX_RUNS:
            log.notes.add(f"only the first {_MAX_RUNS} runs of this log are judged")
            pending = None
            break
        pending = _Pending(log, request)
        pending.read(progress or _silently)
    if pending is not None:
        if linted:
            pending.tell_several(len(linted) + 1)
        linted.append(pending.close())
    return linted


def _silently(rows: int) -> None:
    """Nobody wants to hear it."""


class _Pending:
    """A run that was read, but not yet closed: it may turn out not to be the only one."""

    def __init__(self, log: LogRun, request: LintRequest) -> None:
        self.log = log
        suffix = f", run {log.number}" if log.number > 1 else ""
        self.label = redact(f"{log.path}{suffix}")
        config = _with_hints(request.config, _hints(log, request.config))
        self.session = RunSession(self.label, config, request.command)
        self.numbers = SummaryBuilder()

    def read(self, progress: Callable[[int], None]) -> None:
        """Judge the records."""
        for piece in self.log.pieces:
            if piece.span is not None:
                self.session.take_span(piece.span)
                self.numbers.take_span(piece.span)
            for record in piece.records:
                self.session.take(record)
                self.numbers.take(record)
            progress(self.numbers.rows)

    def tell_several(self, runs: int) -> None:
        """Say that the log holds several runs, which were judged apart."""
        name = self.log.path.name
        self.session.session.use((SEVERAL_RUNS_IN_ONE_LOG,))
        self.session.session.add(
            SEVERAL_RUNS_IN_ONE_LOG.issue(
                f"{name} holds {runs} runs; each was judged apart.",
                runs=Quantity(value=runs, unit="runs", limit=1),
            )
        )

    def close(self) -> LintedRun:
        """Judge the run as a whole."""
        report = self.session.finish()
        return LintedRun(
            label=self.label, log=self.log, report=report, summary=self._summary(report)
        )

    def _summary(self, report: RunReport) -> RunSummary:
        numbers, path = self.numbers, self.log.path
        project = project_of(Path.cwd())
        signals = self.log.columns.signals
        spoke = [issue.rule for issue in report.issues if issue.severity > Severity.INFO]
        return RunSummary(
            id=run_id(project, path, self.log.number),
            project=redact(project),
            source=self.label,
            logged_utc=_written(path),
            rows=numbers.rows,
            last_step=numbers.last_step,
            loss_column=next((raw for raw, name in signals.items() if name == "loss"), ""),
            first_loss=numbers.first_loss,
            best_loss=numbers.best_loss,
            best_step=numbers.best_step,
            last_loss=numbers.last_loss,
            best_val_loss=numbers.best_val_loss,
            curve=tuple(numbers.curve),
            rules=tuple(dict.fromkeys(spoke)),
        )


def _written(path: Path) -> str:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except OSError as error:
        raise InputError(f"{path}: went away while it was read") from error


def _hints(log: LogRun, config: Config) -> dict[str, object]:
    """Return what the log itself says about the run, where the person declared nothing."""
    declared = config.options(DiagnoseOptions)
    hints: dict[str, object] = {}
    if log.columns.adversarial and not declared.loss:
        hints["loss"] = "custom"
    if log.path.name == "trainer_state.json" and not declared.planned_steps:
        is_small = log.path.stat().st_size < _PLANNED_BYTES
        hints["planned_steps"] = (planned_steps(log.path) if is_small else None) or 0
    return hints


def _with_hints(config: Config, hints: Mapping[str, object]) -> Config:
    if not hints:
        return config
    values: dict[str, object] = {}
    for setting in config.settings:
        if setting.source == "default":
            continue
        if setting.table:
            table = values.setdefault(setting.table, {})
            if isinstance(table, dict):
                table[setting.key] = setting.value
        else:
            values[setting.key] = setting.value
    given = Layer(source="settings", style="cli", values=values)
    said = Layer(source="the log", style="cli", values={"diagnose": dict(hints)})
    return Config(default_host(), [given, said])

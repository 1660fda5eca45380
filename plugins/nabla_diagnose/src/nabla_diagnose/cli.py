"""``nabla lint``: judge logs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from nabla_core.cli.options import ReportRequest, reporting
from nabla_core.errors import InputError, UsageError

if TYPE_CHECKING:
    from nabla_core.cli.state import ShellState

    from .linting import LintedRun, LintRequest

__all__ = ["lint"]

EXIT_USAGE, EXIT_NOTHING_CHECKED = 2, 4


@click.command("lint")
@click.argument("logs", metavar="LOG...", nargs=-1)
@click.option(
    "--map",
    "mapped",
    multiple=True,
    metavar="SIGNAL=COLUMN",
    help="Which column is which, e.g. loss=Train/Loss, val_loss=..., step=...",
)
@click.option(
    "--explain", is_flag=True, help="Say why the rules that spoke exist, and their limits."
)
@click.option("--no-history", is_flag=True, help="Keep no summary under .nabla/history.")
@reporting
def lint(
    request: ReportRequest,
    logs: tuple[str, ...],
    mapped: tuple[str, ...],
    explain: bool,
    no_history: bool,
) -> int:
    """Read training logs and say what broke, or say nothing.

    LOG is a file (CSV of any tracker, trainer_state.json, JSON lines, TensorBoard events, parquet,
    a log in text), a folder or a pattern. Several runs give a table with one verdict each.

    Exits with 1 when there are issues at or above --fail-on, 2 when a named log cannot be read, 4
    when there was nothing to judge, 0 otherwise.
    """
    from .combining import combine
    from .explaining import explanations
    from .history.recording import record

    if not logs:
        raise UsageError("lint: name a log, a folder or a pattern, e.g. nabla lint metrics.csv")
    linted, failures = _lint_all(logs, _lint_request(request, logs, mapped), request.state)
    if not linted:
        return _nothing(failures)
    report = combine(linted)
    sections = [] if no_history else record(linted, request.config)
    if explain:
        sections += explanations(report, request.state.host.registry)
    report = replace(report, sections=(*report.sections, *sections))
    return _exit_code(request.deliver(report), linted, failures)


def _lint_request(
    request: ReportRequest, logs: Sequence[str], mapped: Sequence[str]
) -> LintRequest:
    from .linting import LintRequest

    columns = {}
    for text in mapped:
        signal, equals, column = text.partition("=")
        if not equals or not signal.strip() or not column.strip():
            raise UsageError(f"--map {text}: write it as SIGNAL=COLUMN, e.g. loss=Train/Loss")
        columns[signal.strip()] = column.strip()
    command = shlex.join(["nabla", "lint", *logs])
    return LintRequest(config=request.config, columns=columns, command=command)


def _lint_all(
    logs: Sequence[str], request: LintRequest, state: ShellState
) -> tuple[list[LintedRun], list[str]]:
    """Judge all logs; return the runs, and what is wrong with named logs."""
    from .linting import lint_log
    from .progress import Progress
    from .readers.discovery import find_logs

    linted: list[LintedRun] = []
    failures: list[str] = []
    named = list(find_logs(logs))
    for number, found in enumerate(named, start=1):
        try:
            with Progress(found.path.name, number, len(named)) as progress:
                runs_of_log = lint_log(found.path, request, progress)
        except InputError as error:
            if found.named:
                failures.append(str(error))
                click.echo(f"nabla: error: {error}", err=True)
            elif state.verbose > 0:
                click.echo(f"nabla: passed over: {error}", err=True)
            continue
        linted += runs_of_log
        if state.verbose > 0:
            _show_reading(runs_of_log[0])
    return linted, failures


def _show_reading(run: LintedRun) -> None:
    """Say on standard error how a log was read."""
    log = run.log
    click.echo(f"nabla: {log.path}: {log.format}", err=True)
    for line in (*log.columns.lines(), *(f"note: {note}" for note in log.notes.lines())):
        click.echo(f"       {line}", err=True)


def _nothing(failures: Sequence[str]) -> int:
    if failures:
        return EXIT_USAGE
    click.echo("nabla: no log was found there; -v lists what was passed over", err=True)
    return EXIT_NOTHING_CHECKED


def _exit_code(code: int, linted: Sequence[LintedRun], failures: Sequence[str]) -> int:
    if code == 0 and failures:
        return EXIT_USAGE
    if code == 0 and not any(run.was_judged for run in linted):
        return EXIT_NOTHING_CHECKED
    return code

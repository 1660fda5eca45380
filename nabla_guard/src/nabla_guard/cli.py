"""``nabla run``: an unmodified training script, watched."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from nabla_core.cli.options import ReportRequest, reporting

if TYPE_CHECKING:
    from .program.script import Program

__all__ = ["run"]


def _select_audit(context: click.Context, option: click.Parameter, given: bool) -> None:
    """Make the rules of the audit the default of --select; what is given there wins."""
    if given:
        context.default_map = {**(context.default_map or {}), "select": "AUD"}


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option(
    "--audit-only",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_select_audit,
    help="Only the rules of the audit, as --select AUD.",
)
@click.argument("script")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@reporting
def run(request: ReportRequest, script: str, arguments: tuple[str, ...], as_module: bool) -> int:
    """Run SCRIPT with ARGS as python would, and say why its training is wrong.

    Options of nabla come before SCRIPT; everything after it belongs to the script. Standard output
    is the script's alone: issues and the report go to standard error, or into the files named by
    --output and --format FMT=PATH.

    Exits with the script's own status when that is not zero (130 after Ctrl-C), else with 1 when
    there are issues at or above --fail-on, 4 when nothing was checked, 0 otherwise.
    """
    from .program.run import LiveLines, close_report, watch_program

    program = _find(script, as_module)
    stderr = sys.stderr  # the script may replace it
    _make_absolute(request)
    session = request.session(_command_line(script, arguments, as_module))
    if request.state.verbose >= 0:
        session.subscribe(LiveLines(stderr))
    outcome = watch_program(program, arguments, session)
    if outcome.is_forked:
        sys.exit(outcome.status)  # only the process that was started reports
    _flush_stdout()
    stream = io.StringIO() if stderr.closed else stderr
    with redirect_stderr(stream):
        return request.deliver(close_report(session, outcome), stream)


def _find(script: str, as_module: bool) -> Program:
    from .program.script import find_module, find_script

    return find_module(script) if as_module else find_script(script)


def _make_absolute(request: ReportRequest) -> None:
    """Keep the targets where the person meant them: the script may change the working folder."""
    request.deliveries = tuple(
        replace(delivery, path=delivery.path and delivery.path.absolute())
        for delivery in request.deliveries
    )
    if request.write_baseline is not None:
        request.write_baseline = request.write_baseline.absolute()


def _command_line(script: str, arguments: Sequence[str], as_module: bool) -> str:
    words = ["nabla", "run", *(["-m"] if as_module else []), script, *arguments]
    return shlex.join(words)


def _flush_stdout() -> None:
    """Let the script's last lines precede the report where both go to one terminal."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return  # closed by the script or by its reader: the interpreter's own exit says so

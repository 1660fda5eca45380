"""``nabla run`` and ``nabla sanitize``: an unmodified training script, watched."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, get_args

import click

from nabla_core.cli.options import ReportRequest, reporting
from nabla_core.listeners import known_sink

from .options import GuardOptions, Mode

if TYPE_CHECKING:
    from .program.script import Program

__all__ = ["run", "sanitize"]

_CAPTURE = "NABLA_REPLAY_CAPTURE"
_SINKS = "NABLA_SINKS"
_MODES = click.Choice(get_args(Mode))


def _select_audit(context: click.Context, option: click.Parameter, given: bool) -> None:
    """Make the rules of the audit the default of --select; what is given there wins."""
    if given:
        context.default_map = {**(context.default_map or {}), "select": "AUD"}


def _ask_for_capture(context: click.Context, option: click.Parameter, given: bool) -> None:
    """Set ``replay.capture`` for this command; whoever installed nabla-replay reads it."""
    if given:
        _set_for_command(context, _CAPTURE, "true")


def _choose_sinks(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> None:
    """Set ``sinks`` for this command, also where the script watches by itself."""
    if given:
        names = [known_sink(context.obj.host, name) for name in given]
        _set_for_command(context, _SINKS, ",".join(names))


def _set_for_command(context: click.Context, variable: str, value: str) -> None:
    before = os.environ.get(variable)
    os.environ[variable] = value
    context.call_on_close(lambda: _put_back(variable, before))


def _put_back(variable: str, before: str | None) -> None:
    os.environ.pop(variable, None)
    if before is not None:
        os.environ[variable] = before


_OPTIONS = (
    click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, as python -m."),
    click.option(
        "--mode",
        type=_MODES,
        help="How closely to look: losses and gradients (light), also every layer "
        "(standard, the default), also every op (deep).",
    ),
    click.option(
        "--stop-on",
        type=click.Choice(["nonfinite"]),
        help="End the script before the first step that is not finite.",
    ),
    click.option(
        "--audit-only",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_select_audit,
        help="Only the rules of the audit, as --select AUD.",
    ),
    click.option(
        "--capture",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_ask_for_capture,
        help="Also record the run for nabla replay (needs nabla-replay).",
    ),
    click.option(
        "--sink",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_choose_sinks,
        help="Also send what is found to a tracker, repeatable (needs nabla-trackers).",
    ),
    click.argument("script"),
    click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED),
    reporting,
)


def _watching(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options that every way of running a script shares."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


@click.command("run", context_settings={"allow_interspersed_args": False})
@_watching
def run(
    request: ReportRequest,
    script: str,
    arguments: tuple[str, ...],
    as_module: bool,
    mode: Mode | None,
    stop_on: str | None,
) -> int:
    """Run SCRIPT with ARGS as python would, and say why its training is wrong.

    Options of nabla come before SCRIPT; everything after it belongs to the script. Standard output
    is the script's alone: issues and the report go to standard error, or into the files named by
    --output and --format FMT=PATH.

    Exits with the script's own status when that is not zero (130 after Ctrl-C), else with 1 when
    there are issues at or above --fail-on, 4 when nothing was checked, 0 otherwise. A script that
    --stop-on ended has the status 1.
    """
    options = _options(request, mode, stop_on)
    return _watched(request, _Call("run", script, arguments, as_module), options)


@click.command("sanitize", context_settings={"allow_interspersed_args": False})
@_watching
def sanitize(
    request: ReportRequest,
    script: str,
    arguments: tuple[str, ...],
    as_module: bool,
    mode: Mode | None,
    stop_on: str | None,
) -> int:
    """Run SCRIPT with ARGS and look at the result of every op: another name of run --mode deep."""
    options = _options(request, mode or "deep", stop_on)
    return _watched(request, _Call("sanitize", script, arguments, as_module), options)


class _Call(NamedTuple):
    """What the person wants to have run."""

    command: str
    script: str
    arguments: tuple[str, ...]
    as_module: bool

    @property
    def line(self) -> str:
        module = ["-m"] if self.as_module else []
        return shlex.join(["nabla", self.command, *module, self.script, *self.arguments])


def _options(request: ReportRequest, mode: Mode | None, stop_on: str | None) -> GuardOptions:
    options = request.config.options(GuardOptions)
    if mode is not None:
        options = replace(options, mode=mode)
    return options if stop_on is None else replace(options, on_nonfinite="stop")


def _watched(request: ReportRequest, call: _Call, options: GuardOptions) -> int:
    from .program.run import LiveLines, close_report, watch_program

    program = _find(call.script, call.as_module)
    stderr = sys.stderr  # the script may replace it
    _make_absolute(request)
    session = request.session(call.line)
    if request.state.verbose >= 0:
        session.subscribe(LiveLines(stderr))
    outcome = watch_program(program, call.arguments, session, options)
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


def _flush_stdout() -> None:
    """Let the script's last lines precede the report where both go to one terminal."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return  # closed by the script or by its reader: the interpreter's own exit says so

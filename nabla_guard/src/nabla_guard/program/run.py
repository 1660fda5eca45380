"""Runs a program while a session watches it, and says how both ended."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

from nabla_core.errors import InputError
from nabla_core.problem import Problem
from nabla_core.records import Event
from nabla_core.report import NotEvaluated, Section
from nabla_core.rules import HOOK_RAISED
from nabla_core.severity import Severity

from .namesakes import hide_shadowed, restore_modules
from .on_import import when_imported
from .script import install_main
from .uncaught import exit_status, show_uncaught, wait_for_threads

if TYPE_CHECKING:
    from nabla_core.issue import Issue
    from nabla_core.report import Report
    from nabla_core.session import Session

    from ..options import GuardOptions
    from .script import Program

__all__ = [
    "INTERRUPTED_STATUS",
    "NOTHING_CHECKED_STATUS",
    "LiveLines",
    "Outcome",
    "close_report",
    "run_program",
    "watch_program",
]

INTERRUPTED_STATUS = 130
"""What a shell shows for a program that Ctrl-C ended."""

NOTHING_CHECKED_STATUS = 4

Ending = Literal["finished", "raised", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended.

    Attributes:
        status: exit status that Python would give it; 130 for an uncaught Ctrl-C.
        ending: whether it ran to its end (or called ``sys.exit``), raised, or was interrupted.
        error: type of the uncaught exception.
        is_forked: whether this is the end of a child process that the program forked.
    """

    status: int
    ending: Ending = "finished"
    error: str = ""
    is_forked: bool = False

    @property
    def failed(self) -> bool:
        """Whether the operating system sees a non-zero status; it keeps the low byte only."""
        return self.status & 0xFF != 0


_INTERRUPTED = Outcome(status=INTERRUPTED_STATUS, ending="interrupted", error="KeyboardInterrupt")


class LiveLines:
    """Prints one line per new issue; a stream that the program closed ends it silently."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def __call__(self, issue: Issue) -> None:
        """Print ``issue`` unless it is only information."""
        if self._stream is None or issue.severity <= Severity.INFO:
            return
        when = "" if issue.step is None else f" at step {issue.step}"
        try:
            print(
                f"nabla: {issue.rule} {issue.name}{when}: {issue.message}",
                file=self._stream,
                flush=True,
            )
        except (OSError, ValueError):
            self._stream = None


def watch_program(
    program: Program,
    arguments: Sequence[str],
    session: Session,
    options: GuardOptions | None = None,
) -> Outcome:
    """Run ``program`` as ``__main__`` while the live instrument feeds ``session``.

    Args:
        program: what to run.
        arguments: its own arguments.
        session: receives what is found.
        options: how to watch; by default what is configured for the session.

    torch is not imported for the program: watching starts when the program has imported it.

    Raises:
        InputError: the program is a module that does not exist.
    """
    with session, ExitStack() as watching:
        watch = when_imported("torch", lambda: _attach(session, watching, options))
        watching.callback(watch.stop)
        outcome = run_program(program, arguments)
        if outcome.ending != "finished" and not outcome.is_forked:
            session.emit(_ending_event(outcome, session))
    return outcome


def run_program(program: Program, arguments: Sequence[str]) -> Outcome:
    """Run ``program`` as ``__main__``: its output, tracebacks and status are Python's.

    Raises:
        InputError: the program is a module that does not exist.
    """
    started_in = os.getpid()
    hidden = hide_shadowed(program.folder)
    try:
        outcome = _wait(_outcome_of(_run_to_end(program, arguments)))
    finally:
        restore_modules(hidden)
    return dataclasses.replace(outcome, is_forked=os.getpid() != started_in)


def close_report(session: Session, outcome: Outcome) -> Report:
    """Finish ``session`` and give its report the exit code of ``nabla run``.

    The program's own non-zero status wins; 4 says that there was nothing to check.
    """
    report = session.finish()
    unseen = session.last_step < 0 and not report.issues
    if unseen:
        report = _without_verdict(report)
    if outcome.failed:
        return dataclasses.replace(report, exit_code=outcome.status & 0xFF)
    if unseen and report.exit_code == 0:
        return dataclasses.replace(report, exit_code=NOTHING_CHECKED_STATUS)
    return report


def _run_to_end(program: Program, arguments: Sequence[str]) -> BaseException | None:
    """Return what the program left uncaught; returned, so that no exception is being handled."""
    sys.argv[:] = [program.name if program.file else "-m", *arguments]
    try:
        code, main, first = program.load()
    except InputError:
        raise  # a wrong module name is the person's mistake, not the program's
    except BaseException as error:
        return error
    install_main(main, program, [first, *arguments])
    try:
        exec(code, main.__dict__)
    except BaseException as error:
        return error
    return None


def _outcome_of(error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome(status=0)
    if isinstance(error, SystemExit):
        return Outcome(status=exit_status(error))
    status = show_uncaught(error)
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    return Outcome(status=status, ending="raised", error=type(error).__name__)


def _wait(outcome: Outcome) -> Outcome:
    try:
        wait_for_threads()
    except KeyboardInterrupt:
        return _INTERRUPTED
    return outcome


def _attach(session: Session, watching: ExitStack, options: GuardOptions | None) -> None:
    """Attach the instrument; a failure of ours is reported and the program goes on unwatched."""
    try:
        from ..taps.instrument import watch_process

        watching.enter_context(watch_process(session, options))
    except Exception as error:
        session.problem(
            Problem(
                rule=HOOK_RAISED.id,
                plugin="guard",
                message=f"cannot watch this program: {type(error).__name__}: {error}",
                hint="the program ran unwatched; report this with the versions of torch and nabla",
            )
        )


def _ending_event(outcome: Outcome, session: Session) -> Event:
    kind = "exception" if outcome.ending == "raised" else "interrupt"
    return Event(
        kind=kind,
        step=max(session.last_step, 0),
        time_s=session.clock() - session.started_s,
        name=outcome.error,
    )


def _without_verdict(report: Report) -> Report:
    """Say of a report without a step that no rule has judged anything, and why."""
    reason = (
        "no optimizer step was seen"
        if "torch" in sys.modules
        else "the program never imported torch"
    )
    section = Section(
        title="Why there is no verdict", lines=(f"{reason}: this is no clean result",)
    )
    undecided = [NotEvaluated(rule=rule, reason=reason) for rule in report.rules_used]
    return dataclasses.replace(
        report,
        rules_used=(),
        not_evaluated=(*report.not_evaluated, *undecided),
        sections=(*report.sections, section),
    )

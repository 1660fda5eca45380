"""Hook implementations of nabla-replay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.declarations import Command, Reader, RunList
    from nabla_core.report import Report
    from nabla_core.rule import Rule
    from nabla_core.session import Session


@hookimpl
def nabla_rules() -> Iterable[Rule]:
    """Declare the rules."""
    from .rules import RULES

    return RULES


@hookimpl
def nabla_options() -> type:
    """Declare ``[tool.nabla.replay]``."""
    from .capture_settings import CaptureSettings

    return CaptureSettings


@hookimpl
def nabla_session_start(session: Session) -> None:
    """Capture the run of a script, if that was asked for."""
    from .script_capture import start_capture

    start_capture(session)


@hookimpl
def nabla_session_finish(session: Session, report: Report) -> None:
    """Finish the captured run, and keep the evidence of a failure."""
    from .script_capture import finish_capture

    finish_capture(session, report)


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare the commands about stored runs and artifacts."""
    from .declared import COMMANDS

    return COMMANDS


@hookimpl
def nabla_run_lists() -> Iterable[RunList]:
    """Let ``nabla runs`` show what was captured."""
    from .declared import RUN_LISTS

    return RUN_LISTS


@hookimpl
def nabla_readers() -> Iterable[Reader]:
    """Let ``nabla lint`` read a captured run."""
    from .declared import READERS

    return READERS

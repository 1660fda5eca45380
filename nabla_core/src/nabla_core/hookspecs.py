# mypy: disable-error-code="empty-body"
"""The hooks of nabla. A plugin implements any of them with :data:`hookimpl`.

All arguments are passed by keyword; an implementation may take fewer. Hooks run at set-up or on the
cold path only: never once per training step. They run in the thread that starts the session, and on
every rank of a distributed run. An implementation that raises is reported (NAB004) and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from .declarations import Adapter, Command, Reader, Reporter, RunList, Sink
    from .detector import Detector, Signal, StateProvider
    from .issue import Issue
    from .report import Cause, Report, Section
    from .rule import Rule
    from .session import Session

__all__ = ["PROJECT", "hookimpl"]

PROJECT = "nabla"

hookimpl = pluggy.HookimplMarker(PROJECT)
hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec
def nabla_rules() -> Iterable[Rule]:
    """Declare the rules of this plugin. At load; must not import torch or numpy."""


@hookspec
def nabla_options() -> type | tuple[str, type]:
    """Declare a frozen dataclass of options, bound to ``[tool.nabla.<plugin>]``. At load.

    Return the class, or ``(table, class)`` when the table has another name than the plugin.
    """


@hookspec
def nabla_commands() -> Iterable[Command]:
    """Declare commands of ``nabla``. At load; nothing is imported for ``--help``."""


@hookspec
def nabla_reporters() -> Iterable[Reporter]:
    """Declare report formats. At load."""


@hookspec
def nabla_readers() -> Iterable[Reader]:
    """Declare log readers. At load."""


@hookspec
def nabla_adapters() -> Iterable[Adapter]:
    """Declare framework adapters. At load."""


@hookspec
def nabla_sinks() -> Iterable[Sink]:
    """Declare trackers that can receive issues. At load."""


@hookspec
def nabla_run_lists() -> Iterable[RunList]:
    """Declare stores whose runs ``nabla runs`` shows. At load."""


@hookspec
def nabla_session_start(session: Session) -> None:
    """Called once when a session starts, before its detectors are made."""


@hookspec
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make the detectors of this session. Called once; leave out those nobody selected."""


@hookspec
def nabla_signals(session: Session) -> Iterable[Signal]:
    """Offer extra signals that this plugin can compute from a live loop. Called once."""


@hookspec
def nabla_state_providers(session: Session) -> Iterable[StateProvider]:
    """Offer state that a capture must save and restore. Called once."""


@hookspec
def nabla_issue(session: Session, issue: Issue) -> Issue | None:
    """Observe a new issue, or return a rewritten one. Cold path: once per distinct issue."""


@hookspec
def nabla_explain(session: Session, issues: tuple[Issue, ...]) -> Iterable[Cause]:
    """Group issues into causes. Called once, when the session finishes."""


@hookspec
def nabla_report_sections(report: Report) -> Iterable[Section]:
    """Add sections to a report. Called once, after the causes are known."""


@hookspec
def nabla_session_finish(session: Session, report: Report) -> None:
    """Called once when a session has finished and its report is complete."""

"""The small core of nabla: rules, issues, sessions, reports, plugins and the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Command": "declarations",
    "Detector": "detector",
    "Event": "records",
    "Example": "rule",
    "Issue": "issue",
    "Location": "issue",
    "Quantity": "issue",
    "Report": "report",
    "Reporter": "declarations",
    "Rule": "rule",
    "Session": "session",
    "SessionOptions": "session",
    "Severity": "severity",
    "StepRecord": "records",
    "allow": "allowance",
    "current_session": "session",
    "hookimpl": "hookspecs",
    "option": "options",
}
__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from .allowance import allow as allow
    from .declarations import Command as Command
    from .declarations import Reporter as Reporter
    from .detector import Detector as Detector
    from .hookspecs import hookimpl as hookimpl
    from .issue import Issue as Issue
    from .issue import Location as Location
    from .issue import Quantity as Quantity
    from .options import option as option
    from .records import Event as Event
    from .records import StepRecord as StepRecord
    from .report import Report as Report
    from .rule import Example as Example
    from .rule import Rule as Rule
    from .session import Session as Session
    from .session import SessionOptions as SessionOptions
    from .session import current_session as current_session
    from .severity import Severity as Severity


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

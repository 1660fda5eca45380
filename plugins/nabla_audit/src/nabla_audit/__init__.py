"""Decides silent faults of a training loop exactly: by order of calls, membership and mode."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .asserting import AuditFailed as AuditFailed
    from .asserting import assert_trains as assert_trains
    from .resuming import ResumeResult as ResumeResult
    from .resuming import resume as resume

__all__ = ["AuditFailed", "ResumeResult", "assert_trains", "resume"]

_HOMES = {
    "AuditFailed": "asserting",
    "ResumeResult": "resuming",
    "assert_trains": "asserting",
    "resume": "resuming",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)

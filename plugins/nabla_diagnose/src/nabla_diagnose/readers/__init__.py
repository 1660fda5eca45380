"""Readers of logs: any tracker's file becomes runs of step records.

Each module knows one format and yields :class:`~nabla_diagnose.readers.block.Block`; what the
columns mean is decided in one place (:mod:`.naming`, :mod:`.mapping`), and :mod:`.assembling`
makes the records.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .log import LogRun as LogRun
    from .log import read_run as read_run
    from .log import read_runs as read_runs
    from .mapping import ReadOptions as ReadOptions
    from .naming import direction_of as direction_of

__all__ = ["LogRun", "ReadOptions", "direction_of", "read_run", "read_runs"]

_HOMES = {
    "LogRun": "log",
    "ReadOptions": "mapping",
    "direction_of": "naming",
    "read_run": "log",
    "read_runs": "log",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)

"""Reads a training run, live or from its log, and says what broke, or says nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import lint_records as lint_records
    from .judging import lint as lint
    from .options import DiagnoseOptions as DiagnoseOptions
    from .run_report import RunReport as RunReport
    from .watching import Run as Run
    from .watching import watch as watch

__all__ = ["DiagnoseOptions", "Run", "RunReport", "lint", "lint_records", "watch"]

_HOMES = {
    "DiagnoseOptions": "options",
    "Run": "watching",
    "RunReport": "run_report",
    "lint": "judging",
    "lint_records": "engine",
    "watch": "watching",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)

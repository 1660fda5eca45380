"""Measures nabla itself: planted bugs that it must find, and what watching costs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bug import Bug as Bug
    from .bugbench import BugBench as BugBench
    from .bugbench import Outcome as Outcome
    from .bugbench import Verdict as Verdict
    from .bugbench import run_bugbench as run_bugbench
    from .bugs import BUGS as BUGS
    from .costs import Cost as Cost
    from .overhead import Overhead as Overhead
    from .overhead import OverheadOptions as OverheadOptions
    from .overhead import run_overhead as run_overhead

_HOMES = {
    "BUGS": "bugs",
    "Bug": "bug",
    "BugBench": "bugbench",
    "Cost": "costs",
    "Outcome": "bugbench",
    "Overhead": "overhead",
    "OverheadOptions": "overhead",
    "Verdict": "bugbench",
    "run_bugbench": "bugbench",
    "run_overhead": "overhead",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

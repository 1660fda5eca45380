"""Watches the numbers and the calls of a live PyTorch training loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .monitor import Monitor as Monitor
    from .monitor import guard as guard
    from .sanitizing import sanitize as sanitize
    from .shadow.registry import shadow_rule as shadow_rule
    from .taps.instrument import watch_process as watch_process

__all__ = ["Monitor", "guard", "sanitize", "shadow_rule", "watch_process"]

_HOMES = {
    "Monitor": "monitor",
    "guard": "monitor",
    "sanitize": "sanitizing",
    "shadow_rule": "shadow.registry",
    "watch_process": "taps.instrument",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)

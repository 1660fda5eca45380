"""Orders the findings of a run into causes: what came first, and what followed from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .explaining import explain as explain
    from .explanation import Explanation as Explanation
    from .hypotheses import Hypothesis as Hypothesis
    from .transitions import Transition as Transition

__all__ = ["Explanation", "Hypothesis", "Transition", "explain"]

_HOMES = {
    "Explanation": "explanation",
    "Hypothesis": "hypotheses",
    "Transition": "transitions",
    "explain": "explaining",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)

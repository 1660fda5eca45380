"""Reports as HTML, JUnit, SARIF and Markdown, and what changed between two of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparing import Comparison as Comparison
    from .comparing import compare as compare
    from .writing import dumps as dumps
    from .writing import html as html
    from .writing import junit as junit
    from .writing import markdown as markdown
    from .writing import sarif as sarif

__all__ = ["Comparison", "compare", "dumps", "html", "junit", "markdown", "sarif"]

_HOMES = {
    "Comparison": "comparing",
    "compare": "comparing",
    "dumps": "writing",
    "html": "writing",
    "junit": "writing",
    "markdown": "writing",
    "sarif": "writing",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Choosing a report format by name or by file ending, and rendering with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..binder import closest
from ..errors import UsageError

if TYPE_CHECKING:
    from ..host import PluginHost
    from ..report import Report
    from .style import Style

__all__ = ["format_for", "known_format", "render"]


def known_format(host: PluginHost, name: str) -> str:
    """Return ``name`` if a loaded plugin has such a format.

    Raises:
        UsageError: nobody has; the message names all formats and the nearest.
    """
    if name in host.reporters:
        return name
    names = sorted(host.reporters)
    raise UsageError(f"--format {name}: choose one of {', '.join(names)}{closest(name, names)}")


def format_for(host: PluginHost, path: Path) -> str:
    """Return the format that the ending of ``path`` implies, else ``console``."""
    for reporter in host.reporters.values():
        if path.suffix.lower() in reporter.suffixes:
            return reporter.name
    return "console"


def render(host: PluginHost, name: str, report: Report, style: Style) -> str:
    """Return ``report`` in the format called ``name``."""
    function = cast("Callable[[Report, Style], str]", host.reporters[name].load())
    return function(report, style)

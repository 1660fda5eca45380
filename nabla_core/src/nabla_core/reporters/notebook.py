"""How a notebook shows a report: by a format that can, else as text."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import cast

from ..declarations import Target
from ..host import default_host
from ..report import Report

__all__ = ["embedded"]


def embedded(report: Report) -> str:
    """Return HTML for a notebook."""
    for reporter in default_host().reporters.values():
        if reporter.notebook:
            target = Target(name=f"{reporter.name} in a notebook", target=reporter.notebook)
            return cast("Callable[[Report], str]", target.load())(report)
    return f"<pre>{escape(report.format())}</pre>"

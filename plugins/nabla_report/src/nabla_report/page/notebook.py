"""A report in a notebook: the page in a frame of its own, so that neither styles the other."""

from __future__ import annotations

from nabla_core.report import Report

from ..markup import tag
from .document import page

__all__ = ["embed"]

_HEIGHT = 640


def embed(report: Report) -> str:
    """Return HTML for a notebook: drawings instead of interactive plots keep the file small."""
    return tag(
        "iframe",
        srcdoc=page(report, None),
        sandbox="allow-scripts",
        title="nabla report",
        width="100%",
        height=_HEIGHT,
        style="border:0",
    )

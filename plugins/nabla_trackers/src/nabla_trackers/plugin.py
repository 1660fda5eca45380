"""Hook implementations of nabla-trackers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.declarations import Sink


@hookimpl
def nabla_sinks() -> Iterable[Sink]:
    """Declare the trackers."""
    from .declared import SINKS

    return SINKS


@hookimpl
def nabla_options() -> tuple[str, type]:
    """Declare ``[tool.nabla.trackers]``."""
    from .options import TrackerOptions

    return "trackers", TrackerOptions

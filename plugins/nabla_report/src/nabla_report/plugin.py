"""Hook implementations of nabla-report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.declarations import Command, Reporter


@hookimpl
def nabla_reporters() -> Iterable[Reporter]:
    """Declare html, junit, sarif and markdown."""
    from .declared import REPORTERS

    return REPORTERS


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla compare``."""
    from .declared import COMMANDS

    return COMMANDS

"""Hook implementations of nabla-precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.declarations import Command
from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.rule import Rule


@hookimpl
def nabla_rules() -> Iterable[Rule]:
    """Declare the rules."""
    from .rules import RULES

    return RULES


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla precision``."""
    summary = "Say which modules of a model may run in half precision."
    return [Command(name="precision", target="nabla_precision.cli:precision", summary=summary)]

"""The core as a plugin of itself: its rules, commands and report formats."""

from __future__ import annotations

from .declarations import Command, Reporter
from .hookspecs import hookimpl
from .rule import Rule


@hookimpl
def nabla_rules() -> tuple[Rule, ...]:
    """Rules about nabla itself."""
    from .rules import RULES

    return RULES


@hookimpl
def nabla_commands() -> tuple[Command, ...]:
    """Commands of the core."""
    from .cli.builtin import COMMANDS

    return COMMANDS


@hookimpl
def nabla_reporters() -> tuple[Reporter, ...]:
    """Report formats of the core."""
    from .reporters import REPORTERS

    return REPORTERS

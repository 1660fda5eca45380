"""What nabla-check declares to the host. Glue only."""

from __future__ import annotations

from nabla_core.declarations import Command
from nabla_core.hookspecs import hookimpl
from nabla_core.rule import Rule


@hookimpl
def nabla_rules() -> tuple[Rule, ...]:
    """Declare the CHK rules."""
    from .rules import RULES

    return RULES


@hookimpl
def nabla_commands() -> tuple[Command, ...]:
    """Declare ``nabla check`` and ``nabla fuzz``."""
    return (
        Command(
            name="check",
            target="nabla_check.cli:check",
            summary="Check the derivatives of one or more operators.",
        ),
        Command(
            name="fuzz",
            target="nabla_check.fuzz_cli:fuzz",
            summary="Search shapes, dtypes and layouts for a case that is wrong.",
        ),
    )


@hookimpl
def nabla_options() -> type:
    """Declare the keys of ``[tool.nabla.check]``."""
    from .project.manifest import CheckSettings

    return CheckSettings

"""Hook implementations of nabla-contracts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.detector import Detector
    from nabla_core.rule import Rule
    from nabla_core.session import Session


@hookimpl
def nabla_rules() -> Iterable[Rule]:
    """Declare the rules."""
    from .rules import RULES

    return RULES


@hookimpl
def nabla_options() -> type:
    """Bind ``[tool.nabla.contracts]``."""
    from .settings import ContractSettings

    return ContractSettings


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make a detector for each contract of the configuration."""
    from .detectors import configured_detectors

    return configured_detectors(session)

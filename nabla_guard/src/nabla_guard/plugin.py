"""Hook implementations of nabla-guard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.declarations import Command
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
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla run``."""
    summary = "run a training script, unmodified, and watch it"
    return [Command(name="run", target="nabla_guard.cli:run", summary=summary)]


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make the detectors of a session with a live loop."""
    from .nonfinite import detectors_for  # keeps `nabla rules` free of torch

    return detectors_for(session.source)

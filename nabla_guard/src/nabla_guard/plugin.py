"""Hook implementations of nabla-guard."""

from __future__ import annotations

import sys
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
def nabla_options() -> type:
    """Declare ``[tool.nabla.guard]``."""
    from .options import GuardOptions

    return GuardOptions


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla run`` and ``nabla sanitize``."""
    run = "Run a training script, unmodified, and watch it."
    every_op = "Run a training script and watch every op."
    return [
        Command(name="run", target="nabla_guard.cli:run", summary=run),
        Command(name="sanitize", target="nabla_guard.cli:sanitize", summary=every_op),
    ]


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make the detectors of a session with a live loop."""
    if "torch" not in sys.modules:
        return []  # there is no live loop: a log is being read
    from .verdicts.detectors import detectors_for  # keeps `nabla rules` free of torch

    return detectors_for(session)

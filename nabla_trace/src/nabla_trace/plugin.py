"""Hook implementations of nabla-trace."""

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
    """Declare ``[tool.nabla.trace]``."""
    from .options import TraceOptions

    return TraceOptions


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla trace``."""
    summary = "Run a training script and explain its gradients."
    return [Command(name="trace", target="nabla_trace.cli:trace", summary=summary)]


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make the detector of a session with a live loop."""
    if "torch" not in sys.modules:
        return []  # there is no live loop: a log is being read
    from .residual_detector import detectors_for  # keeps `nabla rules` free of torch

    return detectors_for(session)

"""Hook implementations of nabla-diagnose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.declarations import Command, Reader, RunList
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
    """Bind ``[tool.nabla.diagnose]``."""
    from .options import DiagnoseOptions

    return DiagnoseOptions


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla lint``."""
    from .declared import COMMANDS

    return COMMANDS


@hookimpl
def nabla_readers() -> Iterable[Reader]:
    """Declare the formats that can be read."""
    from .declared import READERS

    return READERS


@hookimpl
def nabla_run_lists() -> Iterable[RunList]:
    """Let ``nabla runs`` show what was judged."""
    from .declared import RUN_LISTS

    return RUN_LISTS


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make the detector of a session."""
    from .detectors import detectors_for  # only when a session starts

    return detectors_for(session)

"""Hook implementations of nabla-audit."""

from __future__ import annotations

import sys
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
    """Bind ``[tool.nabla.audit]``."""
    from .options import AuditOptions

    return AuditOptions


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Make the detectors of a session with a live loop."""
    if "torch" not in sys.modules:
        return []  # there is no live loop: a log is being read
    from .detectors import detectors_for  # only when a session starts

    return detectors_for(session)

"""Hook implementations of nabla-causal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from nabla_core.declarations import Command
    from nabla_core.detector import Detector
    from nabla_core.issue import Issue
    from nabla_core.report import Cause
    from nabla_core.rule import Rule
    from nabla_core.session import Session


@hookimpl
def nabla_rules() -> Iterable[Rule]:
    """Declare the rules."""
    from .rules import RULES

    return RULES


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla explain``."""
    from .declared import COMMANDS

    return COMMANDS


@hookimpl
def nabla_detectors(session: Session) -> Iterable[Detector]:
    """Follow the findings of a session, and look at the layers of a live loop."""
    from .making import detectors_for

    return detectors_for(session)


@hookimpl
def nabla_explain(session: Session, issues: tuple[Issue, ...]) -> Iterable[Cause]:
    """Group the issues into causes."""
    from .explaining import explain_issues

    return explain_issues(issues).causes()

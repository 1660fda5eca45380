"""A fault of one loss: how often it must be seen, and how its issue is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nabla_core.issue import Evidence, Issue
from nabla_core.rule import Rule
from nabla_core.severity import Severity
from nabla_guard.families.losses import LossInput

from .places import where

__all__ = ["Verdict", "verdict"]

Verdict = tuple[int, Callable[[int], Issue]]
"""How often a finding must occur, and how its issue is made for a step."""


def verdict(
    rule: Rule,
    found: LossInput,
    message: str,
    severity: Severity,
    evidence: dict[str, Evidence],
) -> Callable[[int], Issue]:
    """Return what makes the issue of a loss for a step."""
    at = where(found.place, found.loss)

    def make(step: int) -> Issue:
        issue = rule.issue(message, step=step, where=at, phase="loss", severity=severity)
        return replace(issue, evidence=evidence)

    return make

"""What a contract says about a step on which it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nabla_core.issue import Evidence, Phase

from .view import StepView

__all__ = ["Judge", "Judgement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Why a contract does not hold.

    Attributes:
        message: one sentence with the measured value and the limit.
        evidence: names and numbers that prove it.
        phase: part of the training step, where it is known.
    """

    message: str
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    phase: Phase | None = None


Judge = Callable[[StepView], Judgement | None]
"""Looks at a step and returns what is wrong, or nothing. It may keep numbers between steps."""

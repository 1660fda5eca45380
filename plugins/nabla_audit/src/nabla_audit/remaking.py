"""AUD111: an optimizer that is made anew for every step."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import LoopFacts
from nabla_guard.families.remakes import RemakeWatch

from .places import at, where
from .rules.protocol import OPTIMIZER_REMADE
from .streak import CONSECUTIVE

__all__ = ["RemakeDetector"]


class RemakeDetector:
    """Judges the first step of each optimizer."""

    rules = (OPTIMIZER_REMADE,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._remakes = facts.gather(RemakeWatch)
        self._told = False

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the optimizer that is about to step."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.steps or self._told:
            return ()
        length = self._remakes.length(optimizer)
        if length < CONSECUTIVE:
            return ()
        self._told = True
        place = optimizer.made_at
        return [
            OPTIMIZER_REMADE.issue(
                f"{optimizer.name} was made anew{at(place)} for each of {length + 1} steps in a "
                f"row (limit {CONSECUTIVE}): the state that it keeps for its "
                f"{len(optimizer.parameters)} parameters was thrown away every time.",
                step=record.step,
                where=where(place, optimizer.name),
                phase="optimizer",
                optimizers=Quantity(value=length + 1, unit="optimizers", limit=CONSECUTIVE),
            )
        ]

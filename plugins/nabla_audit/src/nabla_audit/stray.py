"""AUD110: gradients that another optimizer's backward left behind."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import Call, LoopFacts, OptimizerFacts
from nabla_guard.families.backwards import BackwardWatch

from .places import at, where
from .rules.protocol import GRADIENT_FROM_OTHER_LOSS
from .streak import CONSECUTIVE, Streaks

__all__ = ["StrayDetector"]


class StrayDetector:
    """Judges steps between whose backward passes another optimizer has stepped."""

    rules = (GRADIENT_FROM_OTHER_LOSS,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._passes = facts.gather(BackwardWatch)
        self._streaks = Streaks()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.closure:
            return ()
        stray = self._stray(optimizer)
        if self._streaks.count(id(optimizer), stray is not None, record.step) != CONSECUTIVE:
            return ()
        return [] if stray is None else [_issue(optimizer, stray, record.step)]

    def _stray(self, optimizer: OptimizerFacts) -> Call | None:
        """The earlier backward that served another optimizer, if only this one's own followed."""
        tail: list[Call] = []
        for call in optimizer.calls:
            tail = [] if call.kind == "clear" else [*tail, call]
        steps = [index for index, call in enumerate(tail) if call.kind == "foreign-step"]
        if not steps:
            return None
        before = [call for call in tail[: steps[0]] if call.kind == "write"]
        after = [call for call in tail[steps[-1] :] if call.kind == "write"]
        if not before or not after:
            return None
        mine = frozenset([id(optimizer)])
        shared = all(len(self._owners(call)) > 1 for call in before)
        return before[0] if shared and all(self._owners(call) == mine for call in after) else None

    def _owners(self, call: Call) -> frozenset[int]:
        known = self._passes.passes.get(call.backward)
        return frozenset() if known is None else known.owners


def _issue(optimizer: OptimizerFacts, stray: Call, step: int) -> Issue:
    place = stray.place
    return GRADIENT_FROM_OTHER_LOSS.issue(
        f"In {CONSECUTIVE} steps in a row the gradients of {stray.parameters} parameters of "
        f"{optimizer.name} still contain those of a backward{at(place)} that was made for another "
        "optimizer: nothing clears them before the own backward adds to them.",
        step=step,
        where=where(place, optimizer.name),
        phase="loop",
        severity=Severity.MEDIUM,
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        parameters=stray.parameters,
    )

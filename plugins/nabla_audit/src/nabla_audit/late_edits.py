"""AUD108: gradients that are changed behind the step that used them."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts
from nabla_guard.families.clipping import ClipWatch

from .places import at, where
from .rules.protocol import CLIP_OF_NOTHING
from .streak import CONSECUTIVE
from .watches.late_edits import LateEdit, LateEditWatch

__all__ = ["LateEditDetector"]


class LateEditDetector:
    """Judges the first steps of each optimizer; calls of torch's clipping are judged elsewhere."""

    rules = (CLIP_OF_NOTHING,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._watch = facts.gather(LateEditWatch)
        self._clips = facts.gather(ClipWatch)
        self._told: set[int] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the optimizer that is about to step."""
        optimizer = self._facts.stepping
        edit = None if optimizer is None else self._watch.edits.get(id(optimizer))
        if optimizer is None or edit is None or edit.in_a_row < CONSECUTIVE or self._clips.ever:
            return ()
        if id(optimizer) in self._told:
            return ()
        self._told.add(id(optimizer))
        return [_issue(optimizer, edit, record.step)]


def _issue(optimizer: OptimizerFacts, edit: LateEdit, step: int) -> Issue:
    place = optimizer.step_at or edit.cleared_at
    return CLIP_OF_NOTHING.issue(
        f"{edit.gradients} gradients of {optimizer.name} are changed after its step"
        f"{at(optimizer.step_at)} has used them and before zero_grad{at(edit.cleared_at)} clears "
        f"them, {CONSECUTIVE} times in a row (limit 0): no step feels the change.",
        step=step,
        where=where(place, optimizer.name),
        phase="loop",
        severity=Severity.MEDIUM,
        gradients_changed=Quantity(value=edit.gradients, unit="gradients", limit=0),
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
    )

"""AUD212: parameters that somebody meant to freeze, and that are trained."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import LoopFacts, ParameterFacts
from nabla_guard.families.freezes import Freeze, FreezeWatch

from .rules.wiring import FREEZE_WITHOUT_EFFECT
from .streak import CONSECUTIVE

__all__ = ["FreezeDetector"]

_AGAIN = 63  # steps, for what is meant to be frozen later


class FreezeDetector:
    """Judges at the third step of each optimizer, and once more later."""

    rules = (FREEZE_WITHOUT_EFFECT,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._freezes = facts.gather(FreezeWatch)
        self._again: set[int] = set()
        self._thawed: set[int] = set()
        self._told: set[tuple[str, str]] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the optimizer that is about to step."""
        optimizer = self._facts.stepping
        if self._freezes.thawed and optimizer is not None:
            moved = [
                facts for facts, count in self._freezes.thawed.values() if count >= CONSECUTIVE
            ]
            fresh = [facts for facts in moved if id(facts) not in self._thawed]
            self._thawed.update(map(id, fresh))
            if fresh:
                return [_thawed_issue(fresh, optimizer.name, record.step)]
        if optimizer is None or optimizer.steps < CONSECUTIVE - 1:
            return ()
        if optimizer.steps != CONSECUTIVE - 1:
            if optimizer.steps < _AGAIN or id(optimizer) in self._again:
                return ()
            self._again.add(id(optimizer))
        found = []
        for freeze in self._freezes.without_effect():
            trained = [facts for facts in freeze.parameters if _is_trained(facts)]
            if trained and (freeze.name, freeze.attribute) not in self._told:
                self._told.add((freeze.name, freeze.attribute))
                found.append(_issue(freeze, trained, record.step))
        return found


def _thawed_issue(moved: list[ParameterFacts], optimizer: str, step: int) -> Issue:
    named = ", ".join(facts.name for facts in moved[:3])
    tail = ", ..." if len(moved) > 3 else ""
    return FREEZE_WITHOUT_EFFECT.issue(
        f"{len(moved)} parameters ({named}{tail}) take no gradients any more, and {CONSECUTIVE} "
        f"steps of {optimizer} moved them (limit 0): their gradients are still there, zero or "
        "used, so that momentum and weight decay go on.",
        step=step,
        where=Location(parameter=moved[0].name),
        phase="optimizer",
        parameters=Quantity(value=len(moved), unit="parameters", limit=0),
        attribute="requires_grad",
    )


def _is_trained(facts: ParameterFacts) -> bool:
    """Whether a parameter gets gradients that some optimizer applies."""
    steps = any(optimizer.steps for optimizer in facts.optimizers)
    return facts.trainable and steps and facts.nonzero_writes >= CONSECUTIVE - 1


def _issue(freeze: Freeze, trained: list[ParameterFacts], step: int) -> Issue:
    named = ", ".join(facts.name for facts in trained[:3])
    tail = ", ..." if len(trained) > 3 else ""
    return FREEZE_WITHOUT_EFFECT.issue(
        f"{freeze.name}.{freeze.attribute} is False, which torch never reads: {len(trained)} of "
        f"{len(freeze.parameters)} parameters ({named}{tail}) got non-zero gradients and are "
        "trained (limit: none).",
        step=step,
        where=Location(module=freeze.name, parameter=trained[0].name),
        phase="loop",
        parameters=Quantity(value=len(trained), unit="parameters", limit=0),
        attribute=freeze.attribute,
    )

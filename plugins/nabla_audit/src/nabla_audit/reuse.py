"""AUD102 for a part of the parameters, or for a gradient that two steps apply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts
from nabla_guard.families.used_gradients import UsedFacts, UsedGradientWatch

from .places import where
from .rules.protocol import GRADIENTS_NOT_CLEARED
from .streak import CONSECUTIVE

__all__ = ["ReuseDetector"]


class ReuseDetector:
    """Judges the first steps of each optimizer."""

    rules = (GRADIENTS_NOT_CLEARED,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._used = facts.gather(UsedGradientWatch)
        self._told: set[tuple[int, str]] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        used = None if optimizer is None else self._used.of(optimizer)
        if optimizer is None or used is None or not (used.reused or used.carried):
            return ()
        return list(self._judge(optimizer, used, record.step))

    def _judge(self, optimizer: OptimizerFacts, used: UsedFacts, step: int) -> Iterator[Issue]:
        often = 2 * used.reused >= used.looked - 1
        if used.reused >= CONSECUTIVE and often and self._is_new(optimizer, "reused"):
            yield _reused(optimizer, used, step)
        if used.carried_steps >= CONSECUTIVE and self._is_new(optimizer, "carried"):
            yield _partly_carried(optimizer, used, step)

    def _is_new(self, optimizer: OptimizerFacts, kind: str) -> bool:
        key = (id(optimizer), kind)
        fresh = key not in self._told
        self._told.add(key)
        return fresh


def _reused(optimizer: OptimizerFacts, used: UsedFacts, step: int) -> Issue:
    return GRADIENTS_NOT_CLEARED.issue(
        f"{used.reused} of the first {used.looked} steps of {optimizer.name} (limit "
        f"{CONSECUTIVE - 1}) applied gradients that a step had already used: no backward wrote "
        "between the two steps, so one gradient is applied twice.",
        step=step,
        where=where(optimizer.step_at, optimizer.name),
        phase="loop",
        severity=Severity.MEDIUM,
        reused=Quantity(value=used.reused, unit="steps", limit=CONSECUTIVE - 1),
        steps=used.looked,
    )


def _partly_carried(optimizer: OptimizerFacts, used: UsedFacts, step: int) -> Issue:
    named = ", ".join(facts.name or str(facts.shape) for facts in used.carried[:4])
    tail = ", ..." if len(used.carried) > 4 else ""
    return GRADIENTS_NOT_CLEARED.issue(
        f"In {CONSECUTIVE} steps in a row backward added to the gradients of {len(used.carried)} "
        f"parameters ({named}{tail}) that the previous {optimizer.name}.step had already used, "
        f"while those of {used.fresh} others were cleared: zero_grad does not reach them.",
        step=step,
        where=where(optimizer.step_at, optimizer.name),
        phase="loop",
        severity=Severity.MEDIUM,
        parameters=Quantity(value=len(used.carried), unit="parameters", limit=0),
        cleared=used.fresh,
    )

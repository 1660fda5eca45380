"""AUD101 and AUD204 from the start to the end: steps for which nothing was written, or no steps."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts
from nabla_guard.families.reach import ReachWatch
from nabla_guard.families.unstepped import IdleFacts, IdleOptimizerWatch
from nabla_guard.families.values import ValueWatch

from .places import where
from .rules.protocol import STEP_WITHOUT_GRADIENT
from .rules.wiring import PARAMETER_NOT_REACHED
from .streak import CONSECUTIVE, Streaks

__all__ = ["IdleDetector"]

_LONG = 10


class IdleDetector:
    """Judges the first steps of each optimizer, while nothing in the program got a gradient."""

    rules = (STEP_WITHOUT_GRADIENT, PARAMETER_NOT_REACHED)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._reach = facts.gather(ReachWatch)
        self._values = facts.gather(ValueWatch)
        self._unstepped = facts.gather(IdleOptimizerWatch)
        self._streaks = Streaks()
        self._told: set[int] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.steps > CONSECUTIVE:
            return ()
        idle = not optimizer.closure and self._is_idle(optimizer)
        length = self._streaks.count(id(optimizer), idle, record.step)
        if idle:
            self._values.keep(optimizer)
        if length != CONSECUTIVE + 1:
            return ()
        same = self._values.identical(optimizer)
        if same is None or same[0] != same[1] or not same[1]:
            return ()  # an optimizer that needs no gradients
        self._told.add(id(optimizer))
        return [_issue(optimizer, self._reach.passes, record.step)]

    def finish(self) -> Iterable[Issue]:
        """Judge the optimizers that took no part in the whole run."""
        for known in self._unstepped.idle.values():
            optimizer = known.optimizer
            if known.changed or id(optimizer) in self._told:
                continue
            alone = not self._unstepped.stepped and not _is_stepped(optimizer)  # else AUD201's
            if known.passes >= _LONG and optimizer.ever_cleared and alone:
                yield _never_stepped(known)
            elif known.empty_steps >= _LONG and known.empty_steps == optimizer.steps:
                yield _never_written(known)

    def _is_idle(self, optimizer: OptimizerFacts) -> bool:
        """Whether a module that it trains ran with gradients, and nothing came of that."""
        if optimizer.gradient not in ("none", "unknown") or optimizer.wrote:
            return False
        if any(facts.writes for facts in self._facts.parameters):
            return False
        return any(
            optimizer in facts.optimizers and facts.trainable
            for module in self._facts.modules
            if module.trained_calls or module.evaluated_calls
            for facts in module.parameters
        )


def _is_stepped(optimizer: OptimizerFacts) -> bool:
    """Whether it, or another optimizer of the same parameters, has made a step."""
    owners = [owner for facts in optimizer.parameters for owner in facts.optimizers]
    return any(owner.steps for owner in (optimizer, *owners))


def _never_stepped(known: IdleFacts) -> Issue:
    optimizer, place = known.optimizer, known.optimizer.backward_at or known.optimizer.made_at
    return STEP_WITHOUT_GRADIENT.issue(
        f"{known.passes} backward passes wrote gradients for {optimizer.name}, which were cleared, "
        f"and its step was called 0 times (limit: once for {_LONG} passes): its parameters do not "
        "change.",
        where=where(place, optimizer.name),
        phase="loop",
        severity=Severity.MEDIUM,
        passes=Quantity(value=known.passes, unit="passes", limit=_LONG),
        steps=0,
    )


def _never_written(known: IdleFacts) -> Issue:
    optimizer, place = known.optimizer, known.optimizer.step_at or known.optimizer.made_at
    count = len(optimizer.parameters)
    return PARAMETER_NOT_REACHED.issue(
        f"All {known.empty_steps} steps of {optimizer.name} (limit {_LONG}) had nothing to apply: "
        f"no backward pass ever wrote a gradient of its {count} parameters, although their module "
        "runs with gradients on; what it returns is cut off before the loss.",
        where=where(place, optimizer.name),
        phase="backward",
        severity=Severity.MEDIUM,
        steps=Quantity(value=known.empty_steps, unit="steps", limit=_LONG),
        parameters=Quantity(value=count, unit="parameters", limit=0),
    )


def _issue(optimizer: OptimizerFacts, passes: int, step: int) -> Issue:
    place = optimizer.step_at or optimizer.made_at
    count = len(optimizer.parameters)
    calls = f"{optimizer.name}.step{f' at {place}' if place is not None else ''}"
    steps = Quantity(value=CONSECUTIVE + 1, unit="steps", limit=CONSECUTIVE)
    tail = f"all {count} parameters are bit-identical after {CONSECUTIVE} steps of {calls}."
    if not passes:
        return STEP_WITHOUT_GRADIENT.issue(
            "The model ran with gradients on and backward was never called (limit: once before "
            f"each step): {tail}",
            step=step,
            where=where(place, optimizer.name),
            phase="loop",
            consecutive_steps=steps,
            parameters=count,
            gradients="none",
        )
    return PARAMETER_NOT_REACHED.issue(
        f"backward ran in {passes} or more passes and wrote no gradient at all: its loss is no "
        "function of any parameter, because it was rebuilt from values (argmax, item(), "
        f"torch.tensor, requires_grad = True on a result), and {tail}",
        step=step,
        where=where(place, optimizer.name),
        phase="backward",
        steps=steps,
        parameters=Quantity(value=count, unit="parameters", limit=0),
    )

"""AUD301: training with the model in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, ModuleFacts, OptimizerFacts

from .rules.mode import TRAINING_IN_EVAL_MODE
from .streak import CONSECUTIVE, Streaks

__all__ = ["ModeDetector"]


class ModeDetector:
    """Judges the mode of the root modules whose forward pass fed a step."""

    rules = (TRAINING_IN_EVAL_MODE,)

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._streaks = Streaks()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None:
            return ()
        fed = [module for module in self._facts.modules if module.mode_dependent]
        if not fed:
            return ()
        return list(self._judge(optimizer, fed, record.step))

    def _judge(
        self, optimizer: OptimizerFacts, fed: list[ModuleFacts], step: int
    ) -> Iterator[Issue]:
        for module in fed:
            if not module.trained_calls and not module.evaluated_calls:
                continue  # only calls without gradients: an evaluation between two steps
            key = (id(optimizer), id(module))
            stuck = _is_stuck(module) and optimizer.wrote and _holds(optimizer, module)
            if self._streaks.count(key, stuck, step) == CONSECUTIVE:
                yield _issue(module, optimizer, self._streaks.since(key), step)


def _is_stuck(module: ModuleFacts) -> bool:
    only_evaluated = module.evaluated_calls > 0 and not module.trained_calls
    return only_evaluated and not module.active_mode_dependent


def _holds(optimizer: OptimizerFacts, module: ModuleFacts) -> bool:
    return any(optimizer in parameter.optimizers for parameter in module.parameters)


def _issue(module: ModuleFacts, optimizer: OptimizerFacts, since: int, step: int) -> Issue:
    inactive = " and ".join(module.mode_dependent)
    if not module.ever_trained:
        story = "it was never in training mode"
    elif module.validated:
        story = "an evaluation switched it over and train() was not called again"
    else:
        story = "it was in training mode before"
    place = module.called_at
    called = f" (called at {place})" if place is not None else ""
    certain = module.ever_trained and module.validated
    return TRAINING_IN_EVAL_MODE.issue(
        f"In {CONSECUTIVE} steps in a row since step {since} {optimizer.name} trained {module.name}"
        f"{called} in evaluation mode, with {inactive} inactive: {story}.",
        step=step,
        where=place.location(module=module.name) if place else Location(module=module.name),
        phase="loop",
        severity=Severity.HIGH if certain else Severity.MEDIUM,
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        since_step=since,
        inactive=inactive,
    )

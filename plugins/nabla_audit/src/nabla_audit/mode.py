"""AUD301: training with the model in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, ModuleFacts, OptimizerFacts
from nabla_guard.families.mode_splits import ModeSplitWatch

from .ledger import Ledger
from .places import where
from .rules.mode import TRAINING_IN_EVAL_MODE
from .streak import CONSECUTIVE, Streaks

__all__ = ["ModeDetector"]


class ModeDetector:
    """Judges the mode of the root modules whose forward pass fed a step."""

    rules = (TRAINING_IN_EVAL_MODE,)

    def __init__(self, facts: LoopFacts, session: Session | None = None) -> None:
        self._facts = facts
        self._ledger = Ledger(session)
        self._streaks = Streaks()
        self._texts: dict[tuple[int, int], tuple[OptimizerFacts, str, int]] = {}
        self._splits = facts.gather(ModeSplitWatch)

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._texts and not self._streaks.running

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
            split = bool(module.trained_calls and self._splits.parts(module))
            stuck = _is_stuck(module) or split
            stuck = stuck and optimizer.wrote and _holds(optimizer, module)
            if stuck:
                self._ledger.held(key, step)
            if self._streaks.count(key, stuck, step) == CONSECUTIVE:
                if self._splits.are_frozen(module):
                    self._streaks.count(key, False, step)
                    continue
                story = self._story(module) if split else _story(module)
                text = _text(module, optimizer, story)
                self._texts[key] = (optimizer, text, self._streaks.since(key))
                issue = _issue(module, text, self._streaks.since(key), step)
                yield self._ledger.made(key, issue)

    def _story(self, module: ModuleFacts) -> str:
        return (
            f"its own training flag is set, and those of the {self._splits.parts(module)} modules "
            "below it (limit 0) are not, as train() would have done"
        )

    def finish(self) -> Iterable[Issue]:
        """Say how many steps of the whole run were made in evaluation mode."""
        for key, (optimizer, text, since) in self._texts.items():
            times = self._ledger.times(key)
            self._ledger.rewrite(
                key,
                f"In {times} of {optimizer.steps} steps, since step {since}, {text}",
                steps=Quantity(value=times, unit="steps", limit=CONSECUTIVE),
            )
        return ()


def _is_stuck(module: ModuleFacts) -> bool:
    only_evaluated = module.evaluated_calls > 0 and not module.trained_calls
    return only_evaluated and not module.active_mode_dependent


def _holds(optimizer: OptimizerFacts, module: ModuleFacts) -> bool:
    return any(optimizer in parameter.optimizers for parameter in module.parameters)


def _story(module: ModuleFacts) -> str:
    if not module.ever_trained:
        return "it was never in training mode"
    if module.validated:
        return "an evaluation switched it over and train() was not called again"
    return "it was in training mode before"


def _text(module: ModuleFacts, optimizer: OptimizerFacts, story: str) -> str:
    place = module.called_at
    called = f" (called at {place})" if place is not None else ""
    inactive = " and ".join(module.mode_dependent)
    return (
        f"{optimizer.name} trained {module.name}{called} in evaluation mode, with {inactive} "
        f"inactive: {story}."
    )


def _issue(module: ModuleFacts, text: str, since: int, step: int) -> Issue:
    place = module.called_at
    certain = module.ever_trained and module.validated and not module.trained_calls
    return TRAINING_IN_EVAL_MODE.issue(
        f"In {CONSECUTIVE} steps in a row since step {since} {text}",
        step=step,
        where=where(place, module=module.name),
        phase="loop",
        severity=Severity.HIGH if certain else Severity.MEDIUM,
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        since_step=since,
        inactive=" and ".join(module.mode_dependent),
    )

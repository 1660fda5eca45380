"""AUD302 and AUD307: evaluation in training mode, recomputation with other random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.always_on import Drop
from nabla_guard.families.evaluations import EvaluationFacts, EvaluationWatch
from nabla_guard.families.recomputation import RecomputationFacts, RecomputationWatch

from .places import where
from .rules.evaluation import DROPOUT_MASK_REDRAWN, EVALUATING_IN_TRAIN_MODE

__all__ = ["EvaluationDetector", "RecomputationDetector", "judge_evaluation"]

_BATCHES = 2
_REDRAWN = 2


class EvaluationDetector:
    """Judges complete evaluations at the next step or at the end."""

    rules = (EVALUATING_IN_TRAIN_MODE,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(EvaluationWatch)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the evaluations before this step."""
        return list(self._judge(record.step)) if self._watch.finished else ()

    def finish(self) -> Iterable[Issue]:
        """Judge the evaluation after the last step."""
        return list(self._judge(None))

    def _judge(self, step: int | None) -> Iterator[Issue]:
        finished, self._watch.finished = self._watch.finished, []
        for evaluation in finished:
            yield from judge_evaluation(evaluation, step)


def judge_evaluation(evaluation: EvaluationFacts, step: int | None) -> Iterator[Issue]:
    """Yield an issue if several batches were evaluated with dropout or in training mode."""
    module, place = evaluation.module, evaluation.place
    trained = any(parameter.optimizers for parameter in module.parameters)
    meant = evaluation.usual or evaluation.repeated
    if evaluation.batches < _BATCHES or meant or not trained:
        return
    if evaluation.drop is not None:
        yield _unreached_issue(evaluation, evaluation.drop, step)
        return
    active = " and ".join(module.mode_dependent)
    mode = "it was in training mode"
    if evaluation.unreached:
        mode = (
            f"its own training flag was off and those of the {evaluation.unreached} modules below "
            "it were on, as eval() would not have left them"
        )
    yield EVALUATING_IN_TRAIN_MODE.issue(
        f"{evaluation.batches} different batches (limit {_BATCHES}) went through {module.name} "
        f"without gradients while {mode}, with {active} active.",
        step=step,
        where=where(place, module=module.name),
        phase="loop",
        batches=Quantity(value=evaluation.batches, unit="batches", limit=_BATCHES),
        active=active,
    )


def _unreached_issue(evaluation: EvaluationFacts, drop: Drop, step: int | None) -> Issue:
    name, place = evaluation.module.name, drop.place
    return EVALUATING_IN_TRAIN_MODE.issue(
        f"{evaluation.batches} different batches (limit {_BATCHES}) went through {name} without "
        f"gradients in evaluation mode, and {drop.module} dropped values all the same: it calls "
        f"{drop.what}.",
        step=step,
        where=where(place, module=drop.module),
        phase="forward",
        batches=Quantity(value=evaluation.batches, unit="batches", limit=_BATCHES),
        active=drop.what,
    )


class RecomputationDetector:
    """Judges each recomputed module once."""

    rules = (DROPOUT_MASK_REDRAWN,)

    def __init__(self, facts: LoopFacts) -> None:
        self._modules = facts.gather(RecomputationWatch).modules
        self._judged: set[int] = set()

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._modules

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge modules that were recomputed often enough."""
        found = []
        for index, facts in enumerate(self._modules):
            if facts.redrawn >= _REDRAWN and index not in self._judged:
                self._judged.add(index)
                found.append(_redrawn_issue(facts, record.step))
        return found


def _redrawn_issue(facts: RecomputationFacts, step: int) -> Issue:
    elsewhere = facts.elsewhere == facts.redrawn
    whose = " of random or numpy, which a checkpoint does not restore" if elsewhere else ""
    return DROPOUT_MASK_REDRAWN.issue(
        f"{facts.module} drew random numbers in its forward pass, and {facts.redrawn} of "
        f"{facts.compared} recomputations in backward (limit {_REDRAWN}) started from another "
        f"random state{whose}.",
        step=step,
        where=Location(module=facts.module),
        phase="backward",
        severity=Severity.MEDIUM if elsewhere else Severity.HIGH,
        redrawn=Quantity(value=facts.redrawn, unit="recomputations", limit=_REDRAWN),
        compared=facts.compared,
    )

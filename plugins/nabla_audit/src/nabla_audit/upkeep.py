"""AUD205 and AUD208 to AUD211: parameters that stay, split, repeat, or are set by others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts
from nabla_guard.families.copies import CopyFacts, CopyWatch
from nabla_guard.families.ties import TieFacts, TieWatch
from nabla_guard.families.values import StillFacts, ValueWatch

from .options import AuditOptions
from .places import at, where
from .rules.wiring import (
    DUPLICATE_PARAMETER,
    EMA_STALE,
    PARAMETER_EDITED,
    PARAMETER_UNCHANGED,
    TIED_WEIGHTS_BROKEN,
)
from .streak import CONSECUTIVE

__all__ = ["CopyDetector", "DuplicateDetector", "TieDetector", "ValueDetector"]

_EVERY = 96  # a calm loop is looked at in full then


class ValueDetector:
    """Judges what the first steps of each optimizer changed, and who else changed it."""

    rules = (PARAMETER_UNCHANGED, PARAMETER_EDITED)

    def __init__(self, facts: LoopFacts, options: AuditOptions) -> None:
        self._facts = facts
        self._values = facts.gather(ValueWatch)
        self._values.declare(options.frozen)
        self._edited: set[int] = set()

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return self._values.is_done

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None:
            return ()
        return list(self._judge(optimizer, record.step))

    def _judge(self, optimizer: OptimizerFacts, step: int) -> Iterator[Issue]:
        still = self._values.still(optimizer)
        if still is not None and still.unchanged:
            yield _still_issue(optimizer, still, step)
        edits = self._values.edited.get(id(optimizer), 0)
        if edits >= CONSECUTIVE and id(optimizer) not in self._edited:
            self._edited.add(id(optimizer))
            yield _edited_issue(optimizer, edits, step)
        for name in self._values.take_thawed():
            yield _thawed_issue(name, step)


class DuplicateDetector:
    """Judges the parameter lists of each optimizer in its first steps and now and then."""

    rules = (DUPLICATE_PARAMETER,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._told: set[int] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the optimizer that is about to step."""
        optimizer = self._facts.stepping
        if optimizer is None or (optimizer.steps > CONSECUTIVE and optimizer.steps % _EVERY):
            return ()
        counts = Counter(map(id, optimizer.parameters))
        if len(counts) == len(optimizer.parameters):
            return ()
        once = {id(facts): facts for facts in optimizer.parameters}
        twice = [facts for key, facts in once.items() if counts[key] > 1]
        if not twice or id(optimizer) in self._told:
            return ()
        self._told.add(id(optimizer))
        place = optimizer.made_at
        named = ", ".join(facts.name or str(facts.shape) for facts in twice[:4])
        return [
            DUPLICATE_PARAMETER.issue(
                f"{optimizer.name} holds {len(optimizer.parameters)} entries for "
                f"{len(counts)} parameters (limit: one each): {named} are stepped more than once.",
                step=record.step,
                where=where(place, optimizer.name),
                phase="optimizer",
                duplicates=Quantity(value=len(twice), unit="entries", limit=0),
            )
        ]


class TieDetector:
    """Judges parameters that should be one object."""

    rules = (TIED_WEIGHTS_BROKEN,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._ties = facts.gather(TieWatch)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what was found since the last step."""
        if not self._ties.found:
            return ()
        return [_tie_issue(tie, record.step) for tie in self._ties.take()]


class CopyDetector:
    """Judges averaged copies when they are evaluated."""

    rules = (EMA_STALE,)
    patient = True

    def __init__(self, facts: LoopFacts, options: AuditOptions) -> None:
        self._copies = facts.gather(CopyWatch)
        self._copies.declared = frozenset(options.ema)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge evaluations since the last step."""
        if not self._copies.found:
            return ()
        return [_copy_issue(copy, record.step) for copy in self._copies.take()]

    def finish(self) -> Iterable[Issue]:
        """Judge evaluations after the last step."""
        return [_copy_issue(copy, None) for copy in self._copies.take()]


def _still_issue(optimizer: OptimizerFacts, still: StillFacts, step: int) -> Issue:
    count = len(still.unchanged)
    named = ", ".join(facts.name or str(facts.shape) for facts in still.unchanged[:4])
    every = not still.others
    what = f"all {count} parameters" if every else f"{count} of {count + still.others} parameters"
    reason = (
        "the steps themselves change nothing"
        if still.by_step
        else "the steps change them and something puts the old values back"
    )
    place = optimizer.step_at or optimizer.made_at
    return PARAMETER_UNCHANGED.issue(
        f"With non-zero gradients and a learning rate of {max(still.rates):.3g}, {what} of "
        f"{optimizer.name} ({named}) are bit-identical after {CONSECUTIVE - 1} further steps "
        f"(limit: 0 unchanged): {reason}.",
        step=step,
        where=where(place, optimizer.name),
        phase="optimizer",
        severity=_still_severity(still),
        unchanged=Quantity(value=count, unit="parameters", limit=0),
        changed=still.others,
        steps=still.steps,
    )


def _still_severity(still: StillFacts) -> Severity:
    """What puts some values back after each step is a constraint or mask that reached its bound."""
    if not still.others:
        return Severity.HIGH
    return Severity.MEDIUM if still.by_step else Severity.INFO


def _edited_issue(optimizer: OptimizerFacts, edits: int, step: int) -> Issue:
    return PARAMETER_EDITED.issue(
        f"Parameters of {optimizer.name} were changed in place between its steps, {edits} times in "
        f"its first {edits + 1} steps (limit 0).",
        step=step,
        where=Location(op=optimizer.name),
        phase="parameter",
        edits=Quantity(value=edits, unit="steps", limit=0),
    )


def _thawed_issue(name: str, step: int) -> Issue:
    return PARAMETER_EDITED.issue(
        f"Parameter {name} is declared frozen, and its values changed in step {step} or before "
        "(limit: 0 changes).",
        step=step,
        where=Location(parameter=name),
        phase="parameter",
        severity=Severity.HIGH,
        changes=Quantity(value=1, limit=0),
    )


_TIE_STORIES = {
    "broken": "were one parameter at the first call and are two now",
    "declared": "are two parameters although the model's config says tie_word_embeddings",
    "memory": "are two parameters over one memory, each stepped with a part of the gradient",
    "values": "start with equal random values as two parameters, and will drift apart",
}


def _tie_issue(tie: TieFacts, step: int) -> Issue:
    certain = tie.kind in ("broken", "declared")
    return TIED_WEIGHTS_BROKEN.issue(
        f"{tie.first} and {tie.second} of {tie.module}, of shape {tie.shape}, "
        f"{_TIE_STORIES[tie.kind]} (limit: 1 parameter).",
        step=step,
        where=Location(module=tie.module, parameter=tie.second),
        phase="parameter",
        severity=Severity.HIGH if certain else Severity.MEDIUM,
        parameters=Quantity(value=2, unit="parameters", limit=1),
        tie=tie.kind,
    )


def _own_buffers_issue(copy: CopyFacts, step: int | None) -> Issue:
    place = copy.place
    return EMA_STALE.issue(
        f"{copy.module} is evaluated with {copy.layers} normalisation layers that have tracked "
        f"{copy.tracked} batches and still have the mean 0 and the variance 1 of their start: "
        "their momentum is 0.",
        step=step,
        where=where(place, module=copy.module),
        phase="loop",
        fault=copy.fault,
        batches_tracked=copy.tracked,
        steps=copy.steps,
    )


def _copy_issue(copy: CopyFacts, step: int | None) -> Issue:
    stories = {
        "untouched-buffers": f"its {copy.layers} normalisation layers have tracked 0 batches (mean "
        f"0, variance 1) while those of the model it follows have tracked {copy.tracked}",
        "stale-buffers": f"its weights moved since the last evaluation, the statistics of its "
        f"{copy.layers} normalisation layers did not, those of its model did ({copy.tracked} "
        "batches)",
        "never-averaged": f"its average was updated 0 times in {copy.steps} steps of its model",
        "stale-weights": "its weights did not move since the last evaluation, those of its model "
        "did",
        "written-unchanged": "its weights were written between evaluations and kept every value, "
        "while those of its model moved",
    }
    if copy.fault == "own-buffers":
        return _own_buffers_issue(copy, step)
    place = copy.place
    return EMA_STALE.issue(
        f"The averaged copy {copy.module} is evaluated{at(place)} although {stories[copy.fault]}.",
        step=step,
        where=where(place, module=copy.module),
        phase="loop",
        fault=copy.fault,
        batches_tracked=copy.tracked,
        steps=copy.steps,
    )

"""Gradients that a step has used already: applied once more, or added to in a part of the
parameters only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from ..facts import OptimizerFacts, ParameterFacts
from ..loop.watch import EVERY_EVENT, Watch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientRecord
    from ..loop.live import LiveLoop

__all__ = ["UsedFacts", "UsedGradientWatch"]

_PATIENCE_STEPS = 24


@dataclass(slots=True, kw_only=True, eq=False)
class UsedFacts:
    """What one optimizer's steps found in the gradients.

    Attributes:
        looked: steps that were looked at.
        reused: those before which nothing was written, and all gradients were ones that a step, of
            this or of another optimizer, had used.
        carried: parameters whose gradients were added onto used ones before the last such step,
            while those of the others were fresh.
        fresh: number of those others.
        carried_steps: steps in a row for which these were the same parameters.
    """

    looked: int = 0
    reused: int = 0
    carried: tuple[ParameterFacts, ...] = ()
    fresh: int = 0
    carried_steps: int = 0


class UsedGradientWatch(Watch):
    """Looks at the gradients of each optimizer before its first steps."""

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._known: dict[int, UsedFacts] = {}
        self._done: set[int] = set()

    def of(self, optimizer: OptimizerFacts) -> UsedFacts | None:
        """Return what is known of an optimizer while it is looked at."""
        return None if id(optimizer) in self._done else self._known.get(id(optimizer))

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        key = id(record.facts)
        if key in self._done or not record.judged or record.facts.closure:
            return
        known = self._known.setdefault(key, UsedFacts())
        known.looked += 1
        if known.looked > _PATIENCE_STEPS:
            self._done.add(key)
            return
        written = [found for found in record.records if found.wrote]
        if written:
            self._note_carried(known, written)
        elif record.facts.gradient == "nonzero":
            known.reused += all(map(_is_used, record.records))

    def _note_carried(self, known: UsedFacts, written: list[GradientRecord]) -> None:
        carried = tuple(found.facts for found in written if found.carried)
        partly = 0 < len(carried) < len(written)
        same = partly and list(map(id, carried)) == list(map(id, known.carried))
        known.carried_steps = known.carried_steps + 1 if same else int(partly)
        known.carried = carried if partly else ()
        known.fresh = len(written) - len(carried)


def _is_used(record: GradientRecord) -> bool:
    """Whether a parameter has no gradient, or one that is untouched since a step used it."""
    parameter = record.ref()
    grad = None if parameter is None else parameter.grad
    if grad is None:
        return True
    same = record.grad is not None and record.grad() is grad
    return same and record.used >= 0 and record.used == record.version == grad._version

"""Optimizers that take no part: never stepped, or stepped and never given a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import Call, OptimizerFacts
from ..loop.exact import sample_of
from ..loop.watch import Watch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientRecord
    from ..loop.live import LiveLoop

__all__ = ["IdleFacts", "IdleOptimizerWatch"]

_OFTEN = 16


@dataclass(slots=True, kw_only=True, eq=False)
class IdleFacts:
    """One optimizer.

    Attributes:
        optimizer: its facts.
        passes: backward passes that wrote gradients of its parameters.
        empty_steps: steps before which none of its parameters had ever got a gradient, while a
            module that holds them ran with gradients.
        changed: whether a parameter was seen to change.
    """

    optimizer: OptimizerFacts
    passes: int = 0
    empty_steps: int = 0
    changed: bool = False
    sample: Tensor | None = field(default=None, repr=False)


class IdleOptimizerWatch(Watch):
    """Counts backward passes for, and empty steps of, each optimizer until it takes part.

    Attributes:
        idle: what is known of those that have not taken part.
        stepped: whether any optimizer has made a step.
    """

    patient = frozenset({"backward_ended", "step_started"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.idle: dict[int, IdleFacts] = {}
        self.stepped = False

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """See :class:`.watch.Watch`."""
        owners = {id(owner): owner for found in written for owner in found.facts.optimizers}
        for owner in owners.values():
            if owner.steps:
                self.idle.pop(id(owner), None)
                continue
            known = self.idle.setdefault(id(owner), IdleFacts(optimizer=owner))
            known.passes += 1
            if known.passes < _OFTEN or known.passes % _OFTEN == 0:
                mine = next(found for found in written if owner in found.facts.optimizers)
                _compare(known, mine)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        facts = record.facts
        if not record.judged:
            return
        self.stepped = True
        if facts.closure or any(held.writes for held in facts.parameters):
            if id(facts) in self.idle:
                del self.idle[id(facts)]
            return
        if record.records and any(map(_could_learn, record.records)):
            known = self.idle.setdefault(id(facts), IdleFacts(optimizer=facts))
            known.empty_steps += 1
            _compare(known, record.records[0])

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        for known in self.idle.values():
            known.sample = None


def _could_learn(found: GradientRecord) -> bool:
    """Whether a module that ran with gradients holds a parameter that takes one."""
    parameter = found.ref()
    return found.facts.running and parameter is not None and parameter.requires_grad


def _compare(known: IdleFacts, found: GradientRecord) -> None:
    """Compare a sample of one parameter with that of the first time."""
    parameter = found.ref()
    if parameter is None:
        return
    if known.sample is None:
        known.sample = sample_of(parameter)
    elif not torch.equal(known.sample, sample_of(parameter)):
        known.changed = True

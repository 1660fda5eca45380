"""Optimizers that are made anew for every step, so that nothing they keep is ever used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..loop.exact import sample_of
from ..loop.watch import Watch

if TYPE_CHECKING:
    from ..facts import OptimizerFacts
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["RemakeWatch"]

_MAX_SERIES = 64
_FEW = 4


class RemakeWatch(Watch):
    """Counts, for each list of parameters, optimizers in a row that made one step and were gone."""

    patient = frozenset({"step_started", "step_ended"})  # a new optimizer ends every calm

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._series: dict[tuple[int, ...], int] = {}
        self._after: dict[tuple[int, ...], list[Tensor]] = {}  # what each step left behind
        self._is_new = False

    def length(self, optimizer: OptimizerFacts) -> int:
        """How many optimizers in a row made one step with these parameters, before this one.

        Args:
            optimizer: the one that is about to make its first step, with no state of its own.
        """
        return self._series.get(_key(optimizer), 0) if self._is_new else 0

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self._is_new = not (record.facts.steps or record.facts.closure or optimizer.state)
        if self._series and not (self._is_new and self._goes_on(record)):
            self._series.pop(_key(record.facts), None)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        if self._is_new and _keeps(optimizer.state.values()):
            key = _key(record.facts)
            if key in self._series or len(self._series) < _MAX_SERIES:
                self._series[key] = self._series.get(key, 0) + 1
                self._after[key] = _samples(record)
        self._is_new = False

    def _goes_on(self, record: OptimizerRecord) -> bool:
        """Whether the parameters still are what the last optimizer left: a model that is set back
        before each step, as to adapt it to one sample, has nothing to go on from."""
        left, now = self._after.get(_key(record.facts), []), _samples(record)
        return len(left) == len(now) and all(map(torch.equal, left, now))


def _samples(record: OptimizerRecord) -> list[Tensor]:
    alive = (found.ref() for found in record.records[:_FEW])
    return [sample_of(parameter) for parameter in alive if parameter is not None]


def _key(optimizer: OptimizerFacts) -> tuple[int, ...]:
    return tuple(map(id, optimizer.parameters))


def _keeps(states: Iterable[object]) -> bool:
    """Whether an optimizer remembers more than the number of its steps."""
    return any(
        isinstance(value, Tensor) and name != "step"
        for state in states
        if isinstance(state, dict)
        for name, value in state.items()
    )

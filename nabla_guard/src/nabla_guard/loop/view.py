"""The facts of a watched loop as detectors see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from ..facts import ModuleFacts, NumberFacts, OptimizerFacts, ParameterFacts
from .evidence import parameters_left_behind
from .exact import looks_fresh, sample_of

if TYPE_CHECKING:
    from .live import LiveLoop
    from .watch import WatchT

__all__ = ["LoopView"]


class LoopView:
    """Implements :class:`nabla_guard.facts.LoopFacts` over a live loop."""

    def __init__(self, loop: LiveLoop) -> None:
        self._loop = loop
        self._last: NumberFacts | None = None

    @property
    def stepping(self) -> OptimizerFacts | None:
        """The optimizer whose step is being closed."""
        quick = self._loop.calm.quick
        if quick is not None:
            quick.note_calls()
        return self._loop.stepping

    @property
    def optimizers(self) -> list[OptimizerFacts]:
        """Optimizers that are alive, also those made before the instrument was attached."""
        if self._loop.calm.quick is not None:
            self._loop.calm.quick.note_calls()
        self._loop.book.search(self._loop.scope.has_optimizer)
        return self._loop.book.facts

    @property
    def parameters(self) -> list[ParameterFacts]:
        """Parameters that are alive, with their modules up to date."""
        self._loop.roots.refresh()
        return [record.facts for record in self._loop.gradients if record.ref() is not None]

    @property
    def modules(self) -> list[ModuleFacts]:
        """Root modules that were called since the last step of any optimizer."""
        if self._loop.calm.quick is not None:
            self._loop.calm.quick.count_calls()
        return self._loop.roots.modules

    @property
    def numbers(self) -> NumberFacts | None:
        """Exact numbers, only while something is not finite."""
        return self._loop.numbers

    @property
    def last_numbers(self) -> NumberFacts | None:
        """What the last step left in the parameters, if it is not finite."""
        return self._last

    @property
    def last_index(self) -> int:
        """The step of the loop that was closed last."""
        return self._loop.index

    def step_of(self, optimizer: OptimizerFacts) -> int:
        """Return the step of the loop at which ``optimizer`` last stepped; -1 before that."""
        record = self._loop.book.of(optimizer)
        return -1 if record is None else record.index

    def examine(self, parameters: Iterable[ParameterFacts]) -> None:
        """See :meth:`nabla_guard.facts.LoopFacts.examine`."""
        wanted = {id(facts) for facts in parameters}
        if wanted:
            self._loop.book.search(self._loop.scope.has_optimizer)
        for record in self._loop.gradients:
            parameter = record.ref()
            if id(record.facts) not in wanted or parameter is None:
                continue
            record.facts.trainable = parameter.requires_grad
            record.facts.fresh = looks_fresh(parameter)
            if record.first is not None:
                record.facts.moved = not torch.equal(record.first, sample_of(parameter))

    def gather(self, family: type[WatchT]) -> WatchT:
        """Return a family of facts that is gathered from now on, only because it is asked for."""
        return self._loop.watches.gather(family)

    def take_last_numbers(self) -> None:
        """Look at the parameters once more, after the last step."""
        self._last = None
        for record in self._loop.book:
            if record.judged and record.facts.steps and self._last is None:
                self._last = parameters_left_behind(record)

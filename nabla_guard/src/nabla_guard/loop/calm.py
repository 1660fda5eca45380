"""Calm: a loop that repeats the same step is looked at through one parameter per optimizer.

Every parameter of an optimizer that was written, cleared and stepped in the same way for some steps
is taken to go on like the first of them. What deviates from the pattern ends the calm at once;
in any case every sixteenth step is looked at in full, every 32nd of a loop in which nothing has
changed for some hundred steps, and every 96th when nothing has for a long time. Those who look at a
step now and then choose every 96th, which is one of them at any time.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.nn import Module
from torch.optim import Optimizer

from ..facts import Call
from ..taps.instrument import INSTRUMENT
from .express import Express
from .gradients import GradientRecord, Group
from .quick import QuickStep

if TYPE_CHECKING:
    from torch import Tensor

    from .book import OptimizerRecord
    from .live import LiveLoop

__all__ = ["Calm"]

_REGULAR_STEPS = 3
_EVERY = ((256, 16), (768, 32))  # steps without a change, and how often one is looked at then
_SELDOM = 96


class Calm:
    """Decides when a loop is calm, and keeps its records while it is.

    Attributes:
        on: whether the present step is expected to be like the ones before.
        due: the step after which one is looked at in full.
        quick: a shorter way through such a step, where there is one.
    """

    def __init__(self, loop: LiveLoop) -> None:
        self.on = False
        self.quick: QuickStep | None = None
        self._loop = loop
        self._covered: dict[int, tuple[weakref.ref[Module], list[OptimizerRecord]]] = {}
        self._held: list[tuple[OptimizerRecord, Group]] = []
        self._wait_until = 0
        self._changed_at = 0
        self.due = 0

    def attend(self, steps: int = 0) -> None:
        """Something happened that is not part of the pattern: look closely.

        Args:
            steps: do so for at least this many steps of the loop.
        """
        self._changed_at = self._loop.index
        self._wait_until = max(self._wait_until, self._loop.index + steps)
        for record in self._loop.book:
            record.regular = 0
        self._end()

    def interrupt(self) -> None:
        """Look at one step in full; if it is like the ones before the calm, go on."""
        for known in self._loop.book:
            known.regular = min(known.regular, _REGULAR_STEPS - 1)
        self._end()

    def judge(self, record: OptimizerRecord, finite: bool) -> None:
        """Compare the step that is being closed with the one before it.

        Args:
            record: the optimizer that is about to step.
            finite: whether its losses, gradients and parameters are finite.
        """
        good = finite and _is_ordinary(record)
        pattern = [(call.kind, call.parameters) for call in record.facts.calls]
        if self.on:
            if not good or pattern != record.pattern:
                self.attend()
            return
        members = [found for found in record.records if found.wrote]
        same = good and pattern == record.pattern and members == record.members
        regular = same and _is_regular(members, has_run=record.facts.closure)
        record.regular = record.regular + 1 if regular else 0
        record.pattern, record.members = pattern, members
        for found in members:
            found.seen_writes = found.facts.writes

    def step_ended(self, record: OptimizerRecord) -> None:
        """Begin or end the calm between two steps."""
        index = self._loop.index
        if self.on:
            if index >= self.due:
                self.interrupt()
        elif record.regular >= _REGULAR_STEPS and index >= self._wait_until:
            self.due = self._next_due(index)
            if index < self.due:
                self._begin(index)

    def _next_due(self, index: int) -> int:
        """The first step from this one on after which one is looked at in full."""
        for steps, every in _EVERY:
            due = index + (-index - 1) % every
            if due - self._changed_at < steps:
                return due
        return index + (-index - 1) % _SELDOM

    # ------------------------------------------------------------------ what happens while calm
    def written(self, found: Sequence[GradientRecord], call: Call, loss: Tensor | None) -> None:
        """A backward pass wrote the gradients of these leaders."""
        first = True
        for record, group in self._held:
            if group.leader in found:
                mine = call if first else Call(kind="write", backward=call.backward)
                mine.parameters = len(group.members)
                record.note(mine)
                record.add_loss(loss)
                first = False
        leaders = [group.leader for _, group in self._held]
        others = [one for one in found if one not in leaders]
        if others:
            self._loop.book.note_writes(others, loss, call, {})
            if any(found.facts.writes == 1 for found in others):
                self.attend()  # a parameter joins the training

    def cleared(self, owner: Optimizer | Module) -> bool:
        """``zero_grad`` of ``owner`` was called; return whether it is dealt with."""
        records = self._records_of(owner)
        groups = self._loop.gradients.groups
        if records is None or not groups:
            return False
        if self.quick is not None:
            if records:
                self.quick.cleared()
            return True
        for record in records:
            group = groups[id(record)]
            if self._loop.gradients.clear((group.leader,)):
                record.note(Call(kind="clear", parameters=len(group.members)))
        return True

    def _records_of(self, owner: Optimizer | Module) -> list[OptimizerRecord] | None:
        """The optimizers whose groups a call clears; ``None`` when it clears a part of one."""
        if isinstance(owner, Optimizer):
            record = self._loop.book.known(owner)
            groups = self._loop.gradients.groups
            return [record] if record is not None and id(record) in groups else None
        known = self._covered.get(id(owner))
        if known is None or known[0]() is not owner:
            records = self._covered_by(owner)
            if records is None:
                return None
            known = self._covered[id(owner)] = (weakref.ref(owner), records)
        return known[1]

    def _covered_by(self, module: Module) -> list[OptimizerRecord] | None:
        held = {id(found) for found in self._loop.gradients.known(module.parameters())}
        records = []
        for record in self._loop.book:
            group = self._loop.gradients.groups.get(id(record))
            inside = 0 if group is None else sum(id(found) in held for found in group.members)
            if group is not None and inside == len(group.members):
                records.append(record)
            elif inside:
                return None
        return records

    # ------------------------------------------------------------------ private
    def _begin(self, index: int) -> None:
        records = [record for record in self._loop.book if record.index >= index - 1]
        if any(record.regular < _REGULAR_STEPS for record in records):
            return
        groups = {id(record): Group(record.members) for record in records}
        if all(group.is_uniform for group in groups.values()):
            self.on = True
            self._covered = {}
            self._held = [(record, groups[id(record)]) for record in records]
            self._loop.gradients.settle(groups)
            self._loop.watches.calm(True)
            if QuickStep.suits(self._loop, records):
                self.quick = QuickStep(self._loop, records[0], groups[id(records[0])])
                if Express.suits(self._loop):
                    INSTRUMENT.let_through(Express(self._loop, self.quick))

    def _end(self) -> None:
        if self.on:
            self.on = False
            quick, self.quick = self.quick, None
            if quick is not None:
                INSTRUMENT.let_through(None)
                quick.give_up()
                INSTRUMENT.keeper.expire()
            self._held = []
            self._loop.gradients.wake()
            self._loop.watches.calm(False)


def _is_ordinary(record: OptimizerRecord) -> bool:
    """Whether there is something to apply, at some rate, and nobody wants a close look."""
    facts = record.facts
    applies = facts.gradient == "nonzero" and (not facts.rates or any(facts.rates))
    searches = facts.closure and sum(call.kind == "write" for call in facts.calls) != 1
    return applies and not searches and not record.curious


def _is_regular(members: list[GradientRecord], *, has_run: bool) -> bool:
    """Whether all were written equally often by one optimizer's passes, and by nobody else.

    Args:
        members: the parameters that were written.
        has_run: the step that is being closed has changed them already, by its closure.
    """
    if not members:
        return False
    passes = members[0].facts.writes - members[0].seen_writes
    return all(
        (parameter := found.ref()) is not None
        and parameter._version == found.data_version + found.per_step * has_run
        and sum(held.steps > 0 for held in found.facts.optimizers) == 1
        and found.facts.writes - found.seen_writes == passes
        and not found.carried
        for found in members
    )

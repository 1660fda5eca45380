"""The optimizers of a watched loop: what they hold, and what happened since their last step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor
from torch.optim import Optimizer

from ..facts import Call, CallKind, OptimizerFacts, Place
from ..taps.optimizers import living_optimizers, parameters_of
from ..taps.place import user_place
from .gradients import GradientRecord, GradientTable, Group
from .signals import is_plain, is_small

__all__ = ["OptimizerBook", "OptimizerRecord"]

Judged = Callable[[Optimizer], bool]

_MAX_CALLS = 256
_MAX_LOSSES = 64
_EARLY_STEPS = 4


class OptimizerRecord:
    """One optimizer with its facts.

    Attributes:
        facts: the public part.
        records: gradient records of its parameters, in group order.
        losses: roots of the backward passes that wrote its gradients since its last step, detached.
        index: step of the loop at which it last stepped; -1 before that.
        finite: whether its gradients were finite at its last step; ``None`` before that.
        judged: whether its steps are judged.
        alert: the next step must be looked at closely.
        plain: whether its parameters are ordinary, see :func:`.signals.is_plain`.
        regular: steps in a row that were alike, see :class:`.calm.Calm`.
        pattern: kind and size of the calls of the last of them.
        members: the gradients that its backward passes wrote.
        small: whether they are also small, see :func:`.signals.is_small`.
    """

    __slots__ = (
        "_ids",
        "alert",
        "facts",
        "finite",
        "index",
        "judged",
        "losses",
        "members",
        "pattern",
        "plain",
        "records",
        "ref",
        "regular",
        "small",
    )

    def __init__(self, optimizer: Optimizer) -> None:
        self.ref = weakref.ref(optimizer)
        self.facts = OptimizerFacts(name=type(optimizer).__name__)
        self.records: list[GradientRecord] = []
        self.losses: list[Tensor] = []
        self.index = -1
        self.finite: bool | None = None
        self.judged = False
        self.plain = self.small = False
        self.alert = False
        self.regular = 0
        self.pattern: list[tuple[CallKind, int]] = []
        self.members: list[GradientRecord] = []
        self._ids: list[int] = []

    @property
    def curious(self) -> bool:
        """Whether places and exact zeros are worth their cost now."""
        return self.facts.steps < _EARLY_STEPS or self.facts.pending or self.alert

    @property
    def idle(self) -> bool:
        """Whether it takes no part: one of an earlier run, or a wrapper around one that steps."""
        if self.facts.steps:
            return False
        wrapped = self.records and any(held.steps for held in self.records[0].facts.optimizers)
        return bool(wrapped) or not self.facts.calls

    def update(self, optimizer: Optimizer, gradients: GradientTable, exact: bool) -> bool:
        """Read the groups again if they hold other parameters than at the last look.

        Args:
            optimizer: the optimizer of this record.
            gradients: where the records of its parameters are.
            exact: compare every parameter, not only their number.

        Returns:
            Whether the groups changed.
        """
        groups = optimizer.param_groups
        size = sum([len(group["params"]) for group in groups])
        if size == len(self._ids) and not exact:
            return False
        parameters = parameters_of(optimizer)
        ids = list(map(id, parameters))
        if ids == self._ids:
            return False
        for record in self.records:
            if self.facts in record.facts.optimizers:
                record.facts.optimizers.remove(self.facts)
        self._ids = ids
        self.plain = is_plain(parameters)
        self.small = self.plain and is_small(parameters)
        self.records = [gradients.record(parameter) for parameter in parameters]
        self.facts.parameters = [record.facts for record in self.records]
        for record in self.records:
            record.facts.ever_held = True
            if self.facts not in record.facts.optimizers:
                record.facts.optimizers.append(self.facts)
        return True

    def note(self, call: Call) -> None:
        """Add a call; with too many of them only the newest are kept."""
        calls = self.facts.calls
        calls.append(call)
        if len(calls) > _MAX_CALLS:
            del calls[: _MAX_CALLS // 2]
        if call.kind == "clear":
            self.facts.ever_cleared = True
            self.losses.clear()

    def add_loss(self, loss: Tensor | None) -> None:
        """Note the root of a backward pass that wrote here."""
        if loss is not None and len(self.losses) < _MAX_LOSSES:
            self.losses.append(loss)

    def mark_zeroed(self, zeroed: list[GradientRecord]) -> None:
        """Note that gradients were set to zero in place, by hand, after they were written."""
        self.note(Call(kind="clear", parameters=len(zeroed), by_hand=True))
        GradientTable.clear(zeroed)

    def end_step(self, index: int, group: Group | None = None) -> None:
        """Start a new step; gradients stay what they are.

        Args:
            index: step of the loop.
            group: if given, only its leader is looked at.
        """
        for record in self.records if group is None else (group.leader,):
            parameter = record.ref()
            if parameter is not None:
                record.stepped(parameter)
        if group is not None:
            group.steps += 1
        self.facts.steps += 1
        self.facts.calls.clear()
        self.losses.clear()
        self.index = index


class OptimizerBook:
    """All optimizers that a watched loop knows.

    Attributes:
        changed: some optimizer holds other parameters than before.
    """

    def __init__(self, gradients: GradientTable) -> None:
        self.changed = False
        self._gradients = gradients
        self._records: dict[int, OptimizerRecord] = {}
        self._searched = False

    def __iter__(self) -> Iterator[OptimizerRecord]:
        return iter(tuple(self._records.values()))

    def get(self, optimizer: Optimizer, judged: Judged) -> OptimizerRecord:
        """Return the record of ``optimizer`` with its parameters up to date."""
        record = self._records.get(id(optimizer))
        if record is None or record.ref() is not optimizer:
            record = self._records[id(optimizer)] = OptimizerRecord(optimizer)
        if record.update(optimizer, self._gradients, record.curious):
            record.judged = judged(optimizer)
            self.changed = True
        return record

    def known(self, optimizer: Optimizer) -> OptimizerRecord | None:
        """Return the record of ``optimizer`` as it is, if there is one."""
        record = self._records.get(id(optimizer))
        return record if record is not None and record.ref() is optimizer else None

    @property
    def curious(self) -> bool:
        """Whether any optimizer that takes part is worth a close look in its next step."""
        return any(record.curious and not record.idle for record in self._records.values())

    def of(self, facts: OptimizerFacts) -> OptimizerRecord | None:
        """Return the record that ``facts`` belong to."""
        return next((record for record in self._records.values() if record.facts is facts), None)

    def search(self, judged: Judged) -> None:
        """Find the optimizers that were made before the instrument was attached; once."""
        if not self._searched:
            self._searched = True
            for optimizer in living_optimizers():
                if id(optimizer) not in self._records:
                    self.get(optimizer, judged)

    @property
    def facts(self) -> list[OptimizerFacts]:
        """Facts of the living optimizers; what only the dead ones held is held by none."""
        for key, record in tuple(self._records.items()):
            optimizer = record.ref()
            if optimizer is None:
                self._drop(key, record)
            else:
                record.update(optimizer, self._gradients, True)
        return [record.facts for record in self._records.values()]

    def note_writes(
        self, written: list[GradientRecord], loss: Tensor | None, call: Call, flags: dict[int, bool]
    ) -> None:
        """Tell the optimizers that hold a written gradient about the backward pass."""
        for record in self._records.values():
            mine = [found for found in written if record.facts in found.facts.optimizers]
            if not mine:
                continue
            known = [flags[id(found)] for found in mine if id(found) in flags] if flags else []
            record.note(
                Call(
                    kind="write",
                    place=call.place,
                    parameters=len(mine),
                    nonzero=any(known) if known else None,
                    backward=call.backward,
                )
            )
            record.facts.backward_at = call.place or record.facts.backward_at
            record.add_loss(loss)

    def note_assignments(self, assigned: list[GradientRecord], call: Call) -> None:
        """Tell the optimizers that hold a gradient which was put there by hand."""
        for record in self._records.values():
            count = sum(record.facts in found.facts.optimizers for found in assigned)
            if count:
                record.note(replace(call, parameters=count))

    def note_clears(
        self, lost: list[GradientRecord], *, by_hand: bool, place: Place | None = None
    ) -> None:
        """Tell the optimizers that hold a cleared gradient."""
        for record in self._records.values():
            count = sum(record.facts in found.facts.optimizers for found in lost)
            if count:
                if not by_hand and place is None and record.curious:
                    place = user_place()
                record.note(Call(kind="clear", place=place, parameters=count, by_hand=by_hand))

    def note_foreign_step(self, stepped: OptimizerRecord) -> None:
        """Tell the others that an optimizer stepped while their gradients were pending."""
        for record in self._records.values():
            if record is not stepped and record.facts.wrote:
                record.note(Call(kind="foreign-step"))

    def _drop(self, key: int, record: OptimizerRecord) -> None:
        del self._records[key]
        for found in record.records:
            if record.facts in found.facts.optimizers:
                found.facts.optimizers.remove(record.facts)

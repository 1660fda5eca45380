"""Whose gradient is it: written by a backward, added onto a used one, cleared, or put there by
hand.

The identity of a gradient is a weak reference to it together with its version counter. An ``id`` is
reused within a few steps, an attribute on the tensor would travel into the user's files, and a
strong
reference would keep the memory that ``zero_grad`` is meant to free.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor
from torch.nn import Parameter

from ..facts import ParameterFacts

__all__ = ["GradientRecord", "GradientTable", "Group", "Looks"]


class GradientRecord:
    """One parameter with what is known about its gradient.

    Attributes:
        facts: the public part.
        grad: the gradient at the last look.
        version: its version counter at the last look.
        used: its version counter after the step that used it; -1 when no step did.
        live: it holds what a backward wrote and nobody cleared since.
        wrote: a backward wrote since the last step.
        carried: that write was added, untouched in between, onto the gradient that the step had
            used.
        first: sample of the values at the first gradient.
        data_version: version counter of the parameter after its last step.
        per_step: how far that counter moves in a step.
        seen_writes: ``facts.writes`` at the last look of :class:`.calm.Calm`.
    """

    __slots__ = (
        "carried",
        "data_version",
        "facts",
        "first",
        "grad",
        "live",
        "per_step",
        "ref",
        "seen_writes",
        "used",
        "version",
        "wrote",
    )

    def __init__(self, parameter: Tensor) -> None:
        self.ref = weakref.ref(parameter)
        self.facts = ParameterFacts(
            shape=tuple(parameter.shape),
            trainable=parameter.requires_grad,
            is_parameter=isinstance(parameter, Parameter),
        )
        self.grad: weakref.ref[Tensor] | None = None
        self.version = -1
        self.used = -1
        self.live = False
        self.wrote = False
        self.carried = False
        self.first: Tensor | None = None
        self.data_version = -1
        self.per_step = 0
        self.seen_writes = 0

    def adopt(self, grad: Tensor | None) -> None:
        """Take ``grad`` as it is: no backward wrote it, no step used it."""
        self.grad = None if grad is None else weakref.ref(grad)
        self.version = -1 if grad is None else grad._version
        self.used = -1
        self.live = self.carried = self.wrote = False

    def resume(self, parameter: Tensor) -> None:
        """Take everything as it is after a pause; a gradient that is there was written."""
        self.adopt(parameter.grad)
        self.live = parameter.grad is not None
        self.data_version = parameter._version

    def written(self, grad: Tensor, same: bool) -> None:
        """Note that a backward wrote ``grad``."""
        if not self.wrote:
            self.carried = self.grad is not None and self.live and self.used == self.version
        self.wrote = self.live = True
        if not same:
            self.grad = weakref.ref(grad)
        self.version = grad._version
        self.facts.writes += 1

    def stepped(self, parameter: Tensor) -> None:
        """Note that a step has used the gradient."""
        grad = parameter.grad
        version = parameter._version
        self.per_step = version - self.data_version
        self.data_version = version
        if grad is not None and self.grad is not None and self.grad() is grad:
            self.version = grad._version
            self.used = grad._version if self.wrote or self.used >= 0 else -1
        self.wrote = False

    def follow(self, leader: GradientRecord, steps: int, writes: int) -> None:
        """Take over what happened to ``leader`` while this one was not looked at.

        Args:
            leader: a record that was in the same state before.
            steps: optimizer steps since then.
            writes: backward passes since then.
        """
        self.facts.writes += writes
        self.live, self.wrote, self.carried = leader.live, leader.wrote, leader.carried
        if self.data_version >= 0:
            self.data_version += steps * self.per_step
        parameter, first = self.ref(), leader.ref()
        grad = None if parameter is None else parameter.grad
        if grad is None or leader.grad is None:
            self.grad, self.version, self.used = leader.grad, -1, -1
            return
        theirs = None if first is None else first.grad
        moved = (
            theirs._version - leader.version
            if theirs is leader.grad() and theirs is not None
            else 0
        )
        self.grad = weakref.ref(grad)
        self.version = grad._version - moved
        self.used = -1 if leader.used < 0 else self.version - (leader.version - leader.used)


class Group:
    """Parameters that have gone through the same for some steps; only the first is looked at.

    Attributes:
        members: all of them.
        leader: the first.
        steps: optimizer steps since the others were looked at.
    """

    __slots__ = ("_writes", "leader", "members", "steps")

    def __init__(self, members: list[GradientRecord]) -> None:
        self.members = members
        self.leader = members[0]
        self.steps = 0
        self._writes = self.leader.facts.writes

    @property
    def is_uniform(self) -> bool:
        """Whether the members are in the same state."""
        return len({_state(found) for found in self.members}) == 1

    def dissolve(self) -> None:
        """Bring the other members up to date."""
        writes = self.leader.facts.writes - self._writes
        for found in self.members[1:]:
            found.follow(self.leader, self.steps, writes)


def _state(record: GradientRecord) -> tuple[bool, bool, bool, bool, int]:
    since_used = record.version - record.used if record.used >= 0 else -1
    return record.live, record.wrote, record.carried, record.grad is None, since_used


@dataclass(slots=True)
class Looks:
    """What a look at all gradients found changed since the last one, without a backward.

    Attributes:
        gone: gradients of a backward that are ``None`` now.
        touched: gradients whose version moved: scaled, clipped, or zeroed in place.
        assigned: gradients that were put there by hand.
    """

    gone: list[GradientRecord] = field(default_factory=list)
    touched: list[GradientRecord] = field(default_factory=list)
    assigned: list[GradientRecord] = field(default_factory=list)


class GradientTable:
    """The gradient records of one watched loop.

    Attributes:
        groups: while the loop is calm, the records that are not looked at one by one, by ``id`` of
            the record of the optimizer that holds them.
    """

    def __init__(self) -> None:
        self._records: dict[int, GradientRecord] = {}
        self.groups: Mapping[int, Group] = {}
        self._watched: tuple[GradientRecord, ...] = ()
        self._joined: dict[int, list[GradientRecord]] = {}

    def __iter__(self) -> Iterator[GradientRecord]:
        self.wake()
        return iter(tuple(self._records.values()))

    def settle(self, groups: Mapping[int, Group]) -> None:
        """Look only at the leader of each group from now on, and at what is in none."""
        inside = {id(found) for group in groups.values() for found in group.members}
        others = [
            record
            for record in self._records.values()
            if id(record) not in inside and not _is_idle(record)
        ]
        self._watched = (*(group.leader for group in groups.values()), *others)
        self._joined = {}
        self.groups = groups

    @property
    def only_leaders(self) -> bool:
        """Whether, while the loop is calm, every parameter that takes part is in a group."""
        return len(self._watched) == len(self.groups)

    def resume(self) -> None:
        """Take all parameters as they are: the loop is watched again after a pause."""
        for record in self:
            parameter = record.ref()
            if parameter is not None:
                record.resume(parameter)

    def wake(self) -> None:
        """Look at every record again; they are brought up to date."""
        if self.groups:
            groups, self.groups = self.groups, {}
            for group in groups.values():
                group.dissolve()

    def joined(self, found: Iterable[GradientRecord]) -> list[GradientRecord]:
        """Return the members of the groups of these leaders: for the same ones the same list."""
        key = hash(tuple(map(id, found)))
        known = self._joined.get(key)
        if known is None:
            leaders = {id(group.leader): group.members for group in self.groups.values()}
            known = [member for one in found for member in leaders.get(id(one), [one])]
            self._joined[key] = known
        return known

    def record(self, parameter: Tensor) -> GradientRecord:
        """Return the record of ``parameter``, made at the first call."""
        known = self._records.get(id(parameter))
        if known is None or known.ref() is not parameter:
            known = self._records[id(parameter)] = GradientRecord(parameter)
        return known

    def known(self, parameters: Iterable[Tensor]) -> list[GradientRecord]:
        """Return the records of those ``parameters`` that have one."""
        records = self._records
        return [
            record
            for parameter in parameters
            if (record := records.get(id(parameter))) is not None and record.ref() is parameter
        ]

    def look(self, records: Iterable[GradientRecord] | None = None) -> Looks:
        """Compare gradients, by default all, with the last look and take them as they are."""
        looks = Looks()
        dead = False
        for record in self if records is None else records:
            parameter = record.ref()
            if parameter is None:
                dead = True
                continue
            grad, known = parameter.grad, record.grad
            if grad is None:
                if known is not None:
                    if record.live:
                        looks.gone.append(record)
                    record.adopt(None)
            elif known is None or known() is not grad:
                record.adopt(grad)
                looks.assigned.append(record)
            elif grad._version != record.version:
                record.version = grad._version
                looks.touched.append(record)
        if dead:
            self._purge()
        return looks

    def written(self) -> list[GradientRecord]:
        """Return the records whose gradient the backward that just ended has written."""
        found = []
        for record in self._watched if self.groups else self:
            parameter = record.ref()
            grad = None if parameter is None else parameter.grad
            if grad is None:
                continue
            same = record.grad is not None and record.grad() is grad
            if not same or grad._version != record.version:
                record.written(grad, same)
                found.append(record)
        return found

    @staticmethod
    def clear(records: Iterable[GradientRecord]) -> list[GradientRecord]:
        """Note a clearing call; return the records that lost what a backward had written."""
        lost = []
        for record in records:
            parameter = record.ref()
            if record.live:
                lost.append(record)
            if record.live or record.grad is not None:
                record.adopt(None if parameter is None else parameter.grad)
        return lost

    def _purge(self) -> None:
        alive = {key: record for key, record in self._records.items() if record.ref() is not None}
        self._records = alive


def _is_idle(record: GradientRecord) -> bool:
    """Whether a parameter takes no part in the training."""
    parameter = record.ref()
    return parameter is None or (parameter.grad is None and not record.live)

"""The quick way through a calm step of a small model with one optimizer.

On such a model every call of Python counts: the whole step is a millisecond. Here a calm step is
compared with its pattern as a few numbers, and what :mod:`.book` and :mod:`.roots` would have noted
is written down only when the step turns out to be different.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter, call, is_
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..facts import Call, CallKind
from .signals import joint_norm

if TYPE_CHECKING:
    from .book import OptimizerRecord
    from .gradients import Group
    from .live import LiveLoop
    from .roots import RootRecord

__all__ = ["QuickStep"]

_grad, _version = attrgetter("grad"), attrgetter("_version")
_CLEAR = 0  # every other entry of a log is the serial number of a backward pass


class QuickStep:
    """Follows the steps of one calm optimizer.

    Attributes:
        optimizer: a weak reference to it.
        roots: the root modules with parameters that every step calls.

    Args:
        loop: the loop that is watched.
        record: its only optimizer.
        group: the parameters that are written in every step.
    """

    __slots__ = (
        "_count",
        "_group",
        "_leader",
        "_log",
        "_loop",
        "_losses",
        "_order",
        "_passes",
        "_pending",
        "_rates",
        "_record",
        "_refs",
        "_rises",  # by how much each of its counters, and their sum, rises in a step
        "_size",
        "_version",  # the sum of the counters: between two steps nobody writes to a parameter
        "optimizer",
        "roots",
    )

    def __init__(self, loop: LiveLoop, record: OptimizerRecord, group: Group) -> None:
        self.optimizer = record.ref
        self._loop = loop
        self._record = record
        self._group = group
        self._leader = group.leader
        self._pending = loop.pending
        self._refs = [found.ref for found in group.members]
        self._order = [kind != "clear" for kind, _ in record.pattern]
        self._count = len(group.members)
        self._size = len(record.records)
        self.roots = {key: root for key, root in loop.roots.now.items() if root.facts.parameters}
        self._log: list[int] = []
        self._losses: list[float] = []
        self._passes: bool | None = None
        self._rates: tuple[float, ...] = ()
        self._version = sum(map(_version, map(call, self._refs)))
        rises = [found.per_step for found in group.members]
        self._rises = (rises[0], sum(rises))

    @staticmethod
    def suits(loop: LiveLoop, records: Sequence[OptimizerRecord]) -> bool:
        """Whether nothing asks for more than a quick step can tell."""
        return (
            len(records) == 1
            and not records[0].facts.closure
            and all(record is records[0] or record.idle for record in loop.book)
            and records[0].small
            and "param_norm" not in loop.wanted
            and {kind for kind, _ in records[0].pattern} <= {"clear", "write"}
            and loop.gradients.only_leaders
            and not loop.watches.listens("backward_ended", "step_started", "step_ended")
        )

    def called(
        self,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        output: object,
    ) -> RootRecord | None:
        """Put a call of a root off as it is; ``None`` for one that not every step makes."""
        root = self.roots.get(id(module))
        if root is None or root.ref() is not module or root.training is not module.training:
            return None
        self._pending.traffic.put_off(root, args, kwargs, output)
        return root

    def cleared(self) -> None:
        """``zero_grad`` was called."""
        leader = self._leader
        if leader.live:
            self._log.append(_CLEAR)
            self._losses.clear()
        elif leader.grad is None:
            return
        parameter = leader.ref()
        leader.adopt(None if parameter is None else parameter.grad)

    def written(self, roots: Sequence[Tensor], serial: int) -> None:
        """A backward pass is over; its loss is read at once, for a copy would cost more."""
        leader = self._leader
        parameter = leader.ref()
        grad = None if parameter is None else parameter.grad
        if grad is None:
            return
        same = leader.grad is not None and leader.grad() is grad
        if same and grad._version == leader.version:
            return
        leader.written(grad, same)
        self._log.append(serial)
        root = roots[0] if len(roots) == 1 else None
        if type(root) is Tensor and root.numel() == 1 and not root.is_meta:
            pending = self._pending
            loss = root if pending.scaled is None else pending.loss(root)
            self._losses.append(float(loss.item()))

    def step(self, optimizer: Optimizer) -> bool:
        """Close a step that is like the ones before; return whether it is."""
        loop, record = self._loop, self._record
        if [*map(bool, self._log)] != self._order or self.optimizer() is not optimizer:
            return False
        rates = self._rates_of(optimizer)
        signals: dict[str, float] | None = {}
        if rates and loop.due:
            signals = self._read()
        if not rates or signals is None or (loop.layers.measures and loop.layers.receive()):
            return False
        record.facts.rates = rates
        signals["lr"] = rates[0]
        self._pending.record = record
        loop.count_step(id(optimizer))
        loop.stepping = record.facts
        if self._passes is None:
            loop.session.calm = True
        if self._passes is not False:  # somebody who wants to see steps goes on doing so
            self._passes = loop.session.passes(loop.index)
        if not self._passes:
            loop.closing.note(signals)
        return True

    def note_calls(self) -> None:
        """Note what happened to the gradients: somebody asks for it, or the step is different."""
        calls = self._record.facts.calls
        for entry in self._log:
            kind: CallKind = "write" if entry else "clear"
            calls.append(Call(kind=kind, parameters=self._count, backward=entry))
        self._log.clear()

    def count_calls(self) -> None:
        """Count the calls of roots: somebody asks for them, or the step is different."""
        for root in self._pending.traffic.uncounted():
            module = root.ref()
            if module is not None:
                self._loop.roots.called(module).count(module, grad=True)

    def ended(self, index: int) -> None:
        """The step is over."""
        record, leader = self._record, self._leader
        parameter = leader.ref()
        if parameter is not None:
            leader.stepped(parameter)
        self._group.steps += 1
        facts = record.facts
        facts.steps += 1
        record.index = index
        if facts.calls:
            facts.calls.clear()
        self._log.clear()
        self._losses.clear()
        one, all_of_them = self._rises
        if leader.per_step == one:
            self._version += all_of_them
        else:
            self._look_again()

    def give_up(self) -> None:
        """Note what happened so far in the present step as the slow way would have."""
        self.note_calls()
        for loss in self._losses:
            self._record.add_loss(torch.tensor(loss, dtype=torch.float64))
        self._losses.clear()
        self.count_calls()
        self._pending.traffic.unpack()

    # ------------------------------------------------------------------ private
    def _look_again(self) -> None:
        """Read the counters: not every step writes to the parameters equally often."""
        try:
            self._version = sum(map(_version, map(call, self._refs)))
        except AttributeError:  # one of them is gone
            self._version = -1

    def _rates_of(self, optimizer: Optimizer) -> tuple[float, ...]:
        """The learning rates; empty when they, or the groups, ask for a closer look."""
        groups = optimizer.param_groups
        rates = [group["lr"] for group in groups]
        known = self._rates
        if len(rates) != len(known) or not all(map(is_, rates, known)):
            if any(type(rate) is not float for rate in rates) or not any(rates):
                return ()
            known = self._rates = tuple(rates)
        return known if sum([len(group["params"]) for group in groups]) == self._size else ()

    def _read(self) -> dict[str, float] | None:
        """Loss and norm of the gradients; ``None`` when they do not tell enough."""
        total = sum(self._losses)
        if not self._losses or not math.isfinite(total):
            return None
        try:
            parameters = list(map(call, self._refs))
            grads = list(map(_grad, parameters))
            if sum(map(_version, parameters)) != self._version:
                return None  # written to by hand
            norm = joint_norm(grads)
        except (AttributeError, TypeError, RuntimeError):  # one is gone, or sparse all of a sudden
            return None
        return None if norm is None else {"loss": total / len(self._losses), "grad_norm": norm}

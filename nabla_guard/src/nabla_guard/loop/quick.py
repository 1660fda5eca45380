"""The quick way through a calm step of a small model with one optimizer.

On such a model every call of Python counts: the whole step is a millisecond. Here a calm step is
compared with its pattern as a few numbers, and what :mod:`.book` would have noted is written down
only when the step turns out to be different.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import Call, CallKind
from .signals import is_ordinary, joint_norm

if TYPE_CHECKING:
    from .book import OptimizerRecord
    from .gradients import Group
    from .live import LiveLoop

__all__ = ["QuickStep"]

_CLEAR = 0  # every other entry of a log is the serial number of a backward pass


class QuickStep:
    """Follows the steps of one calm optimizer.

    Args:
        loop: the loop that is watched.
        record: its only optimizer.
        group: the parameters that are written in every step.
    """

    __slots__ = (
        "_count",
        "_group",
        "_log",
        "_loop",
        "_losses",
        "_order",
        "_record",
        "_refs",
        "_size",
        "_versions",
    )

    def __init__(self, loop: LiveLoop, record: OptimizerRecord, group: Group) -> None:
        self._loop = loop
        self._record = record
        self._group = group
        self._refs = [found.ref for found in group.members]
        self._order = [kind != "clear" for kind, _ in record.pattern]
        self._count = len(group.members)
        self._size = len(record.records)
        self._log: list[int] = []
        self._losses: list[float] = []
        self._versions = self._count_writes()

    @staticmethod
    def suits(loop: LiveLoop, records: Sequence[OptimizerRecord]) -> bool:
        """Whether nothing asks for more than a quick step can tell."""
        return (
            len(records) == len(list(loop.book)) == 1
            and records[0].small
            and "param_norm" not in loop.wanted
            and {kind for kind, _ in records[0].pattern} <= {"clear", "write"}
            and loop.gradients.only_leaders
            and not loop.watches.listens("backward_ended", "step_started", "step_ended")
        )

    def cleared(self) -> None:
        """``zero_grad`` was called."""
        leader = self._group.leader
        if leader.live:
            self._log.append(_CLEAR)
            self._losses.clear()
        if leader.live or leader.grad is not None:
            parameter = leader.ref()
            leader.adopt(None if parameter is None else parameter.grad)

    def written(self, roots: Sequence[Tensor], serial: int) -> None:
        """A backward pass is over; its loss is read at once, for a copy would cost more."""
        leader = self._group.leader
        parameter = leader.ref()
        grad = None if parameter is None else parameter.grad
        if grad is None:
            return
        same = leader.grad is not None and leader.grad() is grad
        if not same or grad._version != leader.version:
            leader.written(grad, same)
            self._log.append(serial)
            if len(roots) == 1 and is_ordinary(roots[0]) and roots[0].numel() == 1:
                pending = self._loop.pending
                root = roots[0] if pending.scaled is None else pending.loss(roots[0])
                self._losses.append(float(root.item()))

    def step(self, optimizer: Optimizer) -> bool:
        """Close a step that is like the ones before; return whether it is."""
        record = self._record
        if record.ref() is not optimizer or self._order != [entry > 0 for entry in self._log]:
            return False
        rates = self._rates(optimizer)
        signals = self._read() if rates and self._loop.due else {} if rates else None
        if signals is None or not self._loop.layers.is_quiet():
            return False
        record.facts.rates = rates
        signals["lr"] = rates[0]
        self._loop.closing.quickly(record, signals)
        return True

    def ended(self, index: int) -> None:
        """The step is over."""
        self._record.end_step(index, self._group)
        self._log.clear()
        self._losses.clear()
        self._versions = self._count_writes()

    def give_up(self) -> None:
        """Note what happened so far in the present step as the slow way would have."""
        calls = self._record.facts.calls
        for entry in self._log:
            kind: CallKind = "write" if entry else "clear"
            calls.append(Call(kind=kind, parameters=self._count, backward=entry))
        for loss in self._losses:
            self._record.add_loss(torch.tensor(loss, dtype=torch.float64))
        self._log.clear()
        self._losses.clear()
        self._loop.pending.traffic.unpack()

    # ------------------------------------------------------------------ private
    def _rates(self, optimizer: Optimizer) -> tuple[float, ...]:
        """The learning rates; empty when they, or the groups, ask for a closer look."""
        groups = optimizer.param_groups
        rates = tuple([group["lr"] for group in groups])
        if sum([len(group["params"]) for group in groups]) != self._size or not any(rates):
            return ()
        return rates if set(map(type, rates)) == {float} else ()

    def _count_writes(self) -> list[int]:
        """Version counters: between two steps nobody writes to a parameter."""
        return [-1 if (found := ref()) is None else found._version for ref in self._refs]

    def _read(self) -> dict[str, float] | None:
        """Loss and norm of the gradients; ``None`` when they do not tell enough."""
        grads = []
        for ref, version in zip(self._refs, self._versions, strict=True):
            parameter = ref()
            if parameter is None or parameter._version != version:
                return None
            grad = parameter.grad
            if grad is None or grad.requires_grad:  # of a backward with create_graph
                return None
            grads.append(grad)
        total = sum(self._losses)
        if not self._losses or not math.isfinite(total):
            return None
        try:
            norm = joint_norm(grads)
        except RuntimeError:  # sparse gradients all of a sudden
            return None
        return None if norm is None else {"loss": total / len(self._losses), "grad_norm": norm}

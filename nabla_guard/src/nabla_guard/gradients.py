"""Whose gradient is it: written by a backward, added onto a used one, cleared, or put there by
hand.

The identity of a gradient is a weak reference to it together with its version counter. An ``id`` is
reused within a few steps, an attribute on the tensor would travel into the user's files, and a
strong
reference would keep the memory that ``zero_grad`` is meant to free.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor
from torch.nn import Parameter

from .facts import ParameterFacts

__all__ = ["GradientRecord", "GradientTable", "Looks"]


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
    """

    __slots__ = (
        "carried",
        "data_version",
        "facts",
        "first",
        "grad",
        "live",
        "ref",
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

    def adopt(self, grad: Tensor | None) -> None:
        """Take ``grad`` as it is: no backward wrote it, no step used it."""
        self.grad = None if grad is None else weakref.ref(grad)
        self.version = -1 if grad is None else grad._version
        self.used = -1
        self.live = self.carried = self.wrote = False

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
        self.data_version = parameter._version
        if grad is not None and self.grad is not None and self.grad() is grad:
            self.version = grad._version
            self.used = grad._version if self.wrote or self.used >= 0 else -1
        self.wrote = False


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
    """The gradient records of one watched loop."""

    def __init__(self) -> None:
        self._records: dict[int, GradientRecord] = {}

    def __iter__(self) -> Iterator[GradientRecord]:
        return iter(tuple(self._records.values()))

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
        for record in self:
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

"""An oracle for gradient accumulation: what one backward over all micro-batches would have given.

The gradient of a mean over the concatenation of micro-batches is the mean of their gradients,
weighted by their numbers of units. So no second pass is made: for one window the gradient that each
backward adds is measured, and how its loss was averaged and scaled is read off the graph. Dropout
masks and batch statistics are those of the training itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import Call, OptimizerFacts
from ..loop.gradients import GradientRecord
from ..loop.watch import EVERY_EVENT, Watch
from .loss_form import LossForm, form_of
from .scaling import ScalerWatch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["AccumulationFacts", "AccumulationWatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulationFacts:
    """One measured window of an optimizer.

    Attributes:
        forms: form of the loss of each backward pass, in order; ``None`` where not known.
        ratio: norm of the sum of all their gradients over the norm of the gradient of the mean
            over the concatenated micro-batches; NaN where that is not known.
        cosine: cosine of the angle between the two.
        used: cosine of the angle between the gradient at the step and that of the last pass
            alone.
    """

    forms: tuple[LossForm | None, ...]
    ratio: float
    cosine: float
    used: float


@dataclass(slots=True, eq=False)
class _Window:
    """Sums over the backward passes of one window; tensors by their position in the optimizer."""

    forms: list[LossForm | None] = field(default_factory=list)
    before: list[Tensor | None] = field(default_factory=list)
    plain: list[Tensor | None] = field(default_factory=list)
    weighted: list[Tensor | None] = field(default_factory=list)
    last: list[Tensor | None] = field(default_factory=list)
    units: float = 0.0


class AccumulationWatch(Watch):
    """Measures one window of an optimizer when a detector asks for it."""

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._scaler = loop.watches.gather(ScalerWatch)
        self._wanted: dict[int, _Window] = {}
        self._measured: dict[int, AccumulationFacts] = {}
        self._form: LossForm | None = None

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self._wanted else EVERY_EVENT

    def measure(self, optimizer: OptimizerFacts) -> None:
        """Measure the window that begins with the coming backward pass."""
        self._measured.pop(id(optimizer), None)
        self._wanted[id(optimizer)] = _Window()

    def take(self, optimizer: OptimizerFacts) -> AccumulationFacts | None:
        """Return what was measured in the window that is being closed, once."""
        return self._measured.pop(id(optimizer), None)

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self._wanted.clear()

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.watch.Watch`."""
        if not self._wanted:
            return
        self._form = form_of(roots[0], self._scaler.scale) if len(roots) == 1 else None
        for record, window in self._windows():
            window.before = [_copy(found) for found in record.records]

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """See :class:`.watch.Watch`."""
        for record, window in self._windows():
            if any(record.facts in found.facts.optimizers for found in written):
                _add(window, record, self._form)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        window = self._wanted.pop(id(record.facts), None)
        if window is not None and window.forms:
            at_step = [_copy(found) for found in record.records]
            self._measured[id(record.facts)] = _compare(window, at_step)

    def _windows(self) -> list[tuple[OptimizerRecord, _Window]]:
        return [
            (record, self._wanted[id(record.facts)])
            for record in self.loop.book
            if id(record.facts) in self._wanted
        ]


def _copy(record: GradientRecord) -> Tensor | None:
    parameter = record.ref()
    grad = None if parameter is None else parameter.grad
    return None if grad is None or grad.is_sparse else grad.detach().clone()


def _add(window: _Window, record: OptimizerRecord, form: LossForm | None) -> None:
    after = [_copy(found) for found in record.records]
    made = [_difference(new, old) for new, old in zip(after, window.before, strict=True)]
    window.forms.append(form)
    window.last = made
    window.plain = _sum(window.plain, made, 1.0)
    if form is not None:
        units = form.units or 1.0
        window.units += units
        window.weighted = _sum(window.weighted, made, units / form.scale)


def _difference(new: Tensor | None, old: Tensor | None) -> Tensor | None:
    return new if new is None or old is None else new - old


def _sum(
    into: list[Tensor | None], parts: list[Tensor | None], factor: float
) -> list[Tensor | None]:
    known = into or [None] * len(parts)
    return [
        old if part is None else part * factor if old is None else old + part * factor
        for old, part in zip(known, parts, strict=True)
    ]


def _compare(window: _Window, at_step: list[Tensor | None]) -> AccumulationFacts:
    forms = tuple(window.forms)
    ratio = cosine = math.nan
    if all(form is not None for form in forms) and window.units:
        whole = [None if part is None else part / window.units for part in window.weighted]
        ratio, cosine = _angle(window.plain, whole)
    _, used = _angle(at_step, window.last)
    return AccumulationFacts(forms=forms, ratio=ratio, cosine=cosine, used=used)


def _angle(left: list[Tensor | None], right: list[Tensor | None]) -> tuple[float, float]:
    """Ratio of the norms and cosine of the angle between two lists of tensors, in float64."""
    product = first = second = 0.0
    with torch.no_grad():
        for one, other in zip(left, right, strict=True):
            if one is not None:
                first += float(one.double().pow(2).sum())
            if other is not None:
                second += float(other.double().pow(2).sum())
            if one is not None and other is not None:
                product += float((one.double() * other.double()).sum())
    if not first or not second:
        return math.nan, math.nan
    return math.sqrt(first / second), product / math.sqrt(first * second)

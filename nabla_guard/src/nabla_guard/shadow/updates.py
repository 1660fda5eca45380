"""Half-precision weights before and after a few steps: which entries no step changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..loop.watch import EVERY_EVENT, Watch
from .limits import dtype_name

if TYPE_CHECKING:
    from ..facts import OptimizerFacts
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["UpdateWatch", "Window"]

_HALF = frozenset({torch.bfloat16, torch.float16})
_ENTRIES = 4096
_FIRST_STEP = 1
_STEPS = 4
_EVERY_STEPS = 400


@dataclass(slots=True, kw_only=True, eq=False)
class Window:
    """A few steps of one optimizer.

    Attributes:
        optimizer: whose steps.
        steps: steps so far.
        judged: entries that are not zero and had a gradient in every step.
        lost: those of them that no step changed.
        parameters: names of parameters all of whose judged entries were lost.
        dtype: dtype of the weights.
        rates: learning rates at its first and last step.
    """

    optimizer: OptimizerFacts
    steps: int = 0
    judged: int = 0
    lost: int = 0
    parameters: list[str] = field(default_factory=list)
    dtype: str = ""
    rates: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())


@dataclass(slots=True, eq=False)
class _Followed:
    """One parameter within a window."""

    name: str
    parameter: Tensor
    before: Tensor
    eligible: Tensor
    lost: Tensor


class UpdateWatch(Watch):
    """Compares half-precision weights over windows of four steps.

    Attributes:
        done: the window that ended last, until somebody has taken it.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.done: Window | None = None
        self._window: Window | None = None
        self._followed: list[_Followed] = []
        self._due: dict[int, int] = {}
        self._watched = False

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self._window is not None else EVERY_EVENT

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self._window = None
        self._followed = []

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        facts = record.facts
        if facts.closure:
            self._forget(facts)  # told only after the step: what was there before is gone
            return
        if self._window is None and facts.steps >= self._due.get(id(record), _FIRST_STEP):
            self._open(record, optimizer)
        if self._window is None or self._window.optimizer is not facts:
            return
        first = self._window.rates[0] or facts.rates
        self._window.rates = (first, facts.rates)
        for found in self._followed:
            grad = found.parameter.grad
            nonzero = None if grad is None else _sampled(grad) != 0.0
            found.before = _sampled(found.parameter).clone()
            found.eligible &= found.before != 0.0
            if nonzero is None or nonzero.shape != found.eligible.shape:
                found.eligible.zero_()
            else:
                found.eligible &= nonzero

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        window = self._window
        if window is None or window.optimizer is not record.facts:
            return
        for found in self._followed:
            found.lost &= _sampled(found.parameter) == found.before
        window.steps += 1
        if window.steps == _STEPS:
            self._close(window, optimizer)

    def _forget(self, facts: OptimizerFacts) -> None:
        if self._window is not None and self._window.optimizer is facts:
            self.stop()

    def _open(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        self._due[id(record)] = record.facts.steps + _EVERY_STEPS
        self._followed = []
        for known in record.records:
            parameter = known.ref()
            if parameter is None or parameter.dtype not in _HALF or parameter.grad is None:
                continue
            if parameter.layout is torch.strided and not parameter.grad.is_sparse:
                sample = _sampled(parameter)
                yes = torch.ones_like(sample, dtype=torch.bool)
                self._followed.append(
                    _Followed(known.facts.name, parameter, sample.clone(), yes, yes.clone())
                )
        if self._followed:
            self._window = Window(optimizer=record.facts)
            self.loop.calm.attend()

    def _close(self, window: Window, optimizer: Optimizer) -> None:
        for found in self._followed:
            if _has_wide_copy(optimizer, found.parameter):
                continue
            judged = int(found.eligible.sum())
            lost = int((found.eligible & found.lost).sum())
            window.judged += judged
            window.lost += lost
            window.dtype = dtype_name(found.parameter.dtype)
            if judged and lost == judged:
                window.parameters.append(found.name)
        self.done, self._window, self._followed = window, None, []


def _sampled(tensor: Tensor) -> Tensor:
    """Up to 4096 entries at equal distances."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _ENTRIES)]


def _has_wide_copy(optimizer: Optimizer, parameter: Tensor) -> bool:
    """Whether the optimizer keeps the weights in float32 and rounds them for the model."""
    state = optimizer.state.get(parameter, {})
    values = state.values() if isinstance(state, dict) else ()
    return any(
        isinstance(value, Tensor)
        and value.dtype in (torch.float32, torch.float64)
        and value.shape == parameter.shape
        and torch.equal(value.to(parameter.dtype), parameter.detach())
        for value in values
    )

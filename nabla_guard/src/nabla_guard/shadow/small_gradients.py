"""Float16 gradients in which most values are too small for their dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..loop.watch import EVERY_EVENT, Watch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["GradientCounts", "SmallGradientWatch"]

_FIRST_STEP = 2
_IN_A_ROW = 2
_EVERY_STEPS = 400
_SMALLEST = torch.finfo(torch.float16).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCounts:
    """Values of the float16 gradients of one step.

    Attributes:
        entries: all of them.
        nonzero: those that are not zero.
        subnormal: non-zero ones below 6.1e-5.
        parameter: name of the parameter with the largest share.
        wide: whether they are kept in float32 by now.
    """

    entries: int
    nonzero: int
    subnormal: int
    parameter: str
    wide: bool


class SmallGradientWatch(Watch):
    """Counts in two steps in a row, early and then every 400.

    Attributes:
        latest: counts of the step that is being closed.
    """

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.latest: GradientCounts | None = None
        self._due: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self.latest = None
        key, steps = id(record), record.facts.steps
        if steps < self._due.get(key, _FIRST_STEP) or self.loop.numbers is not None:
            return
        left = self._left.get(key, _IN_A_ROW) - 1
        self._left[key] = left or _IN_A_ROW
        self._due[key] = steps + (1 if left else _EVERY_STEPS)
        self.latest = _counts(record)


def _counts(record: OptimizerRecord) -> GradientCounts | None:
    entries = nonzero = subnormal = 0
    worst, name, wide = 0.0, "", False
    for found in record.records:
        parameter = found.ref()
        grad = None if parameter is None else parameter.grad
        if grad is None or grad.layout is not torch.strided or not _is_from_half(grad):
            continue
        filled = int((grad != 0.0).sum())
        small = int(((grad.abs() < _SMALLEST) & (grad != 0.0)).sum())
        entries, nonzero, subnormal = entries + grad.numel(), nonzero + filled, subnormal + small
        wide |= grad.dtype is torch.float32
        if filled and small / filled >= worst:
            worst, name = small / filled, found.facts.name
    if not entries:
        return None
    return GradientCounts(
        entries=entries, nonzero=nonzero, subnormal=subnormal, parameter=name, wide=wide
    )


def _is_from_half(grad: Tensor) -> bool:
    """Whether every value is a float16 number: in float32 that is no accident."""
    if grad.dtype is torch.float16:
        return True
    if grad.dtype is not torch.float32 or not bool((grad != 0.0).any()):
        return False
    return torch.equal(grad.detach().half().float(), grad.detach())

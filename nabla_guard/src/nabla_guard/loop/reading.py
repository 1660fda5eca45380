"""The one read per step: norms of gradients and parameters, losses, and ranges of root outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import GradientState
from .book import OptimizerRecord
from .signals import can_read, joint_norm, nonzero_flags, norms, read, total_norm
from .traffic import Traffic

__all__ = ["StepReading", "rates_of", "take"]


@dataclass(slots=True, kw_only=True, eq=False)  # made in every step: frozen would cost three times
class StepReading:
    """Numbers of one step on the host.

    Attributes:
        grads: L2 norms whose squares add up to that of all gradients that could be reduced.
        parameters: the same for the parameters.
        losses: values of the losses.
        outputs: minimum and maximum of each large root output, in the order of the traffic.
        gradient_count: gradients that are not ``None``.
        measured: gradients that could be reduced.
        complete: whether the values could be read at all.
    """

    grads: tuple[float, ...] = ()
    parameters: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    outputs: tuple[float, ...] = ()
    gradient_count: int = 0
    measured: int = 0
    complete: bool = True

    @property
    def loss(self) -> float | None:
        """Mean of the losses that this step was made from."""
        return sum(self.losses) / len(self.losses) if self.losses else None

    @property
    def finite(self) -> bool:
        """Whether everything is finite; a norm may overflow before its tensor does."""
        return math.isfinite(sum(self.losses) + sum(self.grads) + sum(self.parameters))

    def gradient_state(self, record: OptimizerRecord) -> GradientState:
        """Decide exactly whether there is any gradient to apply."""
        if not self.complete:
            return "unknown"
        if not self.gradient_count:
            return "none"
        if any(norm != 0.0 for norm in self.grads):
            return "nonzero"
        if self.measured < self.gradient_count:
            return "unknown"  # some hold values that cannot be reduced
        grads = [
            parameter.grad
            for found in record.records
            if (parameter := found.ref()) is not None and parameter.grad is not None
        ]
        return "nonzero" if any(nonzero_flags(grads)) else "zero"

    def signals(self, optimizer: Optimizer) -> dict[str, float]:
        """Return the scalar signals of the step record."""
        signals: dict[str, float] = {}
        if self.loss is not None:
            signals["loss"] = self.loss
        if self.grads:
            signals["grad_norm"] = total_norm(self.grads)
        if self.parameters:
            signals["param_norm"] = total_norm(self.parameters)
        rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
        on_host = not isinstance(rate, Tensor) or rate.device.type == "cpu"
        if isinstance(rate, (int, float, Tensor)) and on_host:
            signals["lr"] = float(rate)
        return signals


def rates_of(optimizer: Optimizer) -> tuple[float, ...]:
    """Return the learning rate of each group; empty when one of them is missing or on a device."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    known = [
        rate
        for rate in rates
        if isinstance(rate, (int, float))
        or (isinstance(rate, Tensor) and rate.device.type == "cpu")
    ]
    return tuple(map(float, known)) if len(known) == len(rates) else ()


def take(record: OptimizerRecord, traffic: Traffic, due: bool = True) -> StepReading:
    """Measure the step that ``record``'s optimizer is about to make, if it is ``due``."""
    parameters = [parameter for found in record.records if (parameter := found.ref()) is not None]
    grads = [grad for parameter in parameters if (grad := parameter.grad) is not None]
    if not due or (parameters and not can_read(parameters[0])):
        return StepReading(gradient_count=len(grads), complete=False)
    recording = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # torch.no_grad() costs as much as half of the reductions
    try:
        reading = _small(record, grads, parameters, traffic) if record.small and grads else None
        return reading or _each(record, grads, parameters, traffic)
    finally:
        torch._C._set_grad_enabled(recording)


def _small(
    record: OptimizerRecord, grads: list[Tensor], parameters: list[Tensor], traffic: Traffic
) -> StepReading | None:
    """Two joint norms instead of one per tensor; ``None`` when they do not tell enough."""
    if any(grad.is_sparse for grad in grads):
        return None
    grad_norm = joint_norm(grads)
    param_norm = None if grad_norm is None else joint_norm(parameters)
    if grad_norm is None or param_norm is None:
        return None
    limits = traffic.limits
    return StepReading(
        grads=(grad_norm,),
        parameters=(param_norm,),
        losses=tuple([float(loss) for loss in record.losses]),
        outputs=tuple(read(limits)) if limits else (),
        gradient_count=len(grads),
        measured=len(grads),
    )


def _each(
    record: OptimizerRecord, grads: list[Tensor], parameters: list[Tensor], traffic: Traffic
) -> StepReading:
    """The norm of each tensor, and one read of them all."""
    count, losses, limits = len(grads), len(record.losses), traffic.limits
    if record.plain and not any(grad.is_sparse for grad in grads):
        found: list[Tensor | None] = [*torch._foreach_norm(grads + parameters)]
    else:
        found = norms([*grads, *parameters])
        count -= found[:count].count(None)
    values = read([norm for norm in (*found, *record.losses, *limits) if norm is not None])
    end = len(values) - len(limits)
    return StepReading(
        grads=tuple(values[:count]),
        parameters=tuple(values[count : end - losses]),
        losses=tuple(values[end - losses : end]),
        outputs=tuple(values[end:]),
        gradient_count=len(grads),
        measured=count,
    )

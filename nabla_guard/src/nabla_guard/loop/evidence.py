"""The cold path: which numbers are exactly not finite, where, and what made them possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from ..facts import NumberFacts, Place, TensorFault
from .book import OptimizerRecord
from .exact import fault_in
from .reading import StepReading
from .signals import total_norm
from .traffic import Traffic

if TYPE_CHECKING:
    from ..origin.findings import Findings

__all__ = ["Again", "gather", "parameters_left_behind"]

Again = Callable[[OptimizerRecord], "Findings | None"]
"""Executes the step of an optimizer again."""

_SETTINGS = ("lr", "eps", "weight_decay", "momentum")
_MAX_FAULTS = 32


def gather(
    record: OptimizerRecord, reading: StepReading, traffic: Traffic, again: Again | None = None
) -> NumberFacts | None:
    """Return the exact state of a step whose reading is not finite.

    Args:
        record: the optimizer that is about to step.
        reading: what was measured.
        traffic: what went through the root modules.
        again: executes the step again; ``None`` when that is not wanted now.

    Returns:
        ``None`` when every loss, gradient and parameter is finite: only a norm had overflowed.
    """
    parameters = _faulty_parameters(record)
    grads = _faulty_gradients(record)
    loss = next((value for value in reading.losses if not math.isfinite(value)), reading.loss)
    if not parameters and not grads and (loss is None or math.isfinite(loss)):
        return None
    return NumberFacts(
        optimizer=record.facts,
        loss=loss,
        loss_at=_loss_place(record),
        gradients=tuple(grads),
        gradient_count=reading.gradient_count,
        parameters=tuple(parameters),
        param_norm=total_norm(reading.parameters),
        inputs=traffic.odd_inputs(),
        output=traffic.odd_output(reading.outputs),
        outputs_seen=traffic.complete and bool(traffic.outputs),
        written_elsewhere=_written_elsewhere(record),
        gradients_were_finite=record.finite,
        settings=_settings(record),
        findings=None if again is None or parameters else again(record),
        usual=traffic.usual_inputs(),
    )


def parameters_left_behind(record: OptimizerRecord) -> NumberFacts | None:
    """Return what the last step of a finished loop left in the parameters, if it is not finite."""
    parameters = _faulty_parameters(record)
    if not parameters:
        return None
    return NumberFacts(
        optimizer=record.facts,
        parameters=tuple(parameters),
        written_elsewhere=_written_elsewhere(record),
        gradients_were_finite=record.finite,
        settings=_settings(record),
    )


def _faulty_parameters(record: OptimizerRecord) -> list[TensorFault]:
    faults = []
    for found in record.records:
        parameter = found.ref()
        fault = None if parameter is None else fault_in(found.facts.name, parameter)
        if fault is not None:
            faults.append(fault)
    return faults[:_MAX_FAULTS]


def _faulty_gradients(record: OptimizerRecord) -> list[TensorFault]:
    faults = []
    for found in record.records:
        parameter = found.ref()
        grad = None if parameter is None else parameter.grad
        fault = None if grad is None else fault_in(found.facts.name, grad)
        if fault is not None:
            faults.append(fault)
    return faults[:_MAX_FAULTS]


def _written_elsewhere(record: OptimizerRecord) -> bool:
    """Whether a version counter moved since the last step: somebody wrote in place."""
    return any(
        (parameter := found.ref()) is not None
        and found.data_version >= 0
        and parameter._version != found.data_version
        for found in record.records
    )


def _loss_place(record: OptimizerRecord) -> Place | None:
    for call in reversed(record.facts.calls):
        if call.kind == "write" and call.place is not None:
            return call.place
    return record.facts.backward_at


def _settings(record: OptimizerRecord) -> tuple[tuple[str, float], ...]:
    """The settings of the first group, eps also as the dtype of its parameters holds it."""
    optimizer: Optimizer | None = record.ref()
    if optimizer is None or not optimizer.param_groups:
        return ()
    group = optimizer.param_groups[0]
    known = {
        name: float(group[name])
        for name in _SETTINGS
        if isinstance(group.get(name), (int, float)) and (group[name] or name in ("lr", "eps"))
    }
    if "eps" in known and group["params"]:
        dtype = group["params"][0].dtype
        known[f"eps as {str(dtype).removeprefix('torch.')}"] = float(
            torch.tensor(known["eps"]).to(dtype)
        )
    return tuple(known.items())

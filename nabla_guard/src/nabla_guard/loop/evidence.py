"""The cold path: which numbers are exactly not finite, where, and what made them possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..facts import NumberFacts, Place, TensorFault
from ..taps.instrument import INSTRUMENT
from .book import OptimizerRecord
from .exact import fault_in
from .gradients import GradientRecord
from .reading import StepReading
from .signals import total_norm
from .traffic import Traffic

if TYPE_CHECKING:
    from ..origin.findings import Findings
    from ..origin.tape import Write

__all__ = ["Again", "gather", "parameters_left_behind"]

Again = Callable[[OptimizerRecord], "Findings | None"]
"""Executes the step of an optimizer again."""

_SETTINGS = ("lr", "eps", "weight_decay", "momentum")
_MAX_FAULTS = 32
_MAX_WRITTEN = 4


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
        written_at=_written_at(record),
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
        written_at=_written_at(record),
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
    """Whether somebody else may have put what is not finite into a parameter since the last step.

    A version counter that moved says so, unless every write that was seen was harmless: a clamp
    after the step makes no NaN.
    """
    for found, parameter in _faulty(record):
        write = _last_write(record, parameter)
        if write is not None:
            if not write.harmless:
                return True
        elif found.data_version >= 0 and parameter._version != found.data_version:
            return True
    return False


def _written_at(record: OptimizerRecord) -> Place | None:
    for _, parameter in _faulty(record):
        write = _last_write(record, parameter)
        if write is not None and not write.harmless:
            return write.line.place
    return None


def _last_write(record: OptimizerRecord, parameter: Tensor) -> Write | None:
    """The last write by hand since the optimizer's last step, as far as it was seen."""
    kept, optimizer = INSTRUMENT.keeper.kept, record.ref()
    since = 0 if optimizer is None else kept.marks.get(optimizer, 0)
    write = kept.tape.written(parameter)
    return None if write is None or write.number < since else write


def _faulty(record: OptimizerRecord) -> Iterator[tuple[GradientRecord, Tensor]]:
    """The first parameters that are not finite."""
    count = 0
    for found in record.records:
        parameter = found.ref()
        if count < _MAX_WRITTEN and parameter is not None and fault_in("", parameter) is not None:
            count += 1
            yield found, parameter


def _loss_place(record: OptimizerRecord) -> Place | None:
    for call in reversed(record.facts.calls):
        if call.kind == "write" and call.place is not None:
            return call.place
    return record.facts.backward_at


def _settings(record: OptimizerRecord) -> tuple[tuple[str, float], ...]:
    """The settings of the group with the first faulty parameter, eps also as its dtype holds it."""
    optimizer: Optimizer | None = record.ref()
    if optimizer is None or not optimizer.param_groups:
        return ()
    faulty = [parameter for _, parameter in _faulty(record)][:1]
    groups = optimizer.param_groups
    group = next(
        (g for g in groups if faulty and any(p is faulty[0] for p in g["params"])), groups[0]
    )
    known = {
        name: float(group[name])
        for name in _SETTINGS
        if isinstance(group.get(name), (int, float)) and (group[name] or name in ("lr", "eps"))
    }
    if "eps" in known and group["params"]:
        dtype = (faulty or group["params"])[0].dtype
        known[f"eps as {str(dtype).removeprefix('torch.')}"] = float(
            torch.tensor(known["eps"]).to(dtype)
        )
    return tuple(known.items())

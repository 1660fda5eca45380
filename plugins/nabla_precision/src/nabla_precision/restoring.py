"""Leaves a model and the process as they were: attributes, gradients, random states, defaults."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.nn import Module

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["device_states", "set_device_states", "untouched"]

_TABLES = ("_parameters", "_buffers", "_modules")


@contextmanager
def untouched(model: Module) -> Iterator[None]:
    """Put back, whatever happens inside the block, what running ``model`` may change.

    These are the attributes of its modules (a cache, a counter), gradients, the global random
    states of torch, Python and numpy, and the default dtype. Values of parameters and buffers are
    not copied: nothing in here may run on them directly.
    """
    attributes = [(module, _attributes(module)) for module in model.modules()]
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    states, python = device_states(), random.getstate()
    numpy = sys.modules.get("numpy")
    numbers = None if numpy is None else numpy.random.get_state()
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        if numpy is not None:
            numpy.random.set_state(numbers)
        random.setstate(python)
        set_device_states(states)
        for parameter, grad in grads:
            if parameter.grad is not grad:
                parameter.grad = grad
        for module, known in attributes:
            _put_back(module, known)


def device_states() -> tuple[torch.Tensor, ...]:
    """Return the states of torch's generators: of the CPU, then of the devices in use."""
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return (torch.get_rng_state(), *on_devices)


def set_device_states(states: tuple[torch.Tensor, ...]) -> None:
    """Put back what :func:`device_states` returned."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(list(states[1:]))


def _attributes(module: Module) -> dict[str, object]:
    known = dict(vars(module))
    return known | {table: dict(known[table]) for table in _TABLES if table in known}


def _put_back(module: Module, known: dict[str, object]) -> None:
    now: MutableMapping[str, object] = vars(module)
    for name in [name for name in now if name not in known]:
        del now[name]
    for name, value in known.items():
        table = now.get(name)
        if name in _TABLES and isinstance(table, dict) and isinstance(value, dict):
            if list(table) != list(value) or any(table[k] is not value[k] for k in value):
                table.clear()
                table.update(value)
        elif now.get(name) is not value:
            now[name] = value

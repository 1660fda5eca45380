"""State that a program holds beside its parts: counters, tensors that are carried on, generators.

It hangs on the step function: in variables that it closes over, in attributes of its object, in
globals that it names. Only what a person wrote is walked through, not torch and other packages.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..capturing.digests import state_digest
from ..capturing.parts import Parts

__all__ = ["Holding", "OwnState", "changed_names", "own_state", "put_number"]

_MOST_PLACES = 4000
_MOST_ENTRIES = 64  # of one container: more is data, of which only the length is looked at
_MOST_VALUES = 1 << 22  # of one tensor
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_RANDOM = (random.Random, np.random.Generator, torch.Generator)
_GROWING = (list, deque, dict, set)
_FOREIGN = ("torch", "numpy", "builtins", "collections", "functools", "nabla_", "typing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A value that a program holds.

    Attributes:
        value: a plain value itself, of anything else a digest.
        owner: what holds it.
        key: under which name or index.
    """

    value: object
    owner: object
    key: str | int = ""


OwnState = Mapping[str, Holding]
"""What a program holds, by a readable path: ``self.count``, ``hidden``."""


def own_state(roots: tuple[object, ...], parts: Parts) -> OwnState:
    """Return what hangs on a program and is none of its parts.

    Args:
        roots: its step function, and what built it returned.
        parts: of the program: a checkpoint holds them.
    """
    known = {id(one) for one in _parts_of(parts)}
    found: dict[str, Holding] = {}
    waiting: deque[tuple[str, object]] = deque(("", one) for one in roots)
    while waiting and len(found) < _MOST_PLACES:
        path, thing = waiting.popleft()
        if id(thing) in known and thing is not parts.model:
            continue
        known.add(id(thing))
        for key, value, owner in _held_by(thing):
            place = _path(path, key)
            if id(value) in known or place in found:
                continue
            seen = _seen(value)
            if seen is not None:
                found[place] = Holding(value=seen[0], owner=owner, key=key)
            if not isinstance(value, (*_PLAIN, Tensor)):
                waiting.append((place, value))
    return found


def changed_names(before: OwnState, after: OwnState) -> tuple[str, ...]:
    """Return the paths of what differs: numbers and tensors first, then what only grew."""
    names = [
        name
        for name, one in after.items()
        if name not in before or repr(before[name].value) != repr(one.value)
    ]
    inner = [one for one in names for known in names if one.startswith((f"{known}.", f"{known}["))]
    outer = [name for name in names if name not in inner]
    return tuple(sorted(outer, key=lambda name: isinstance(after[name].value, tuple)))


def put_number(holding: Holding, value: int) -> None:
    """Set a number that a program holds."""
    owner, key = holding.owner, holding.key
    if isinstance(owner, CellType):
        owner.cell_contents = value
    elif isinstance(owner, (dict, list)):
        cast("dict[str | int, object]", owner)[key] = value
    elif isinstance(key, str) and hasattr(owner, key):
        setattr(owner, key, value)


def _parts_of(parts: Parts) -> Iterator[object]:
    yield from (parts.model, parts.scaler, parts.loader)
    yield from parts.optimizers
    yield from parts.schedulers
    yield from parts.extra.values()
    for module in (parts.model, *parts.modules.values()):
        yield from module.parameters()
        yield from module.buffers()


def _path(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}".strip(".")


def _seen(value: object) -> tuple[object] | None:
    """Return what is compared of a value; ``None`` for what is only walked through."""
    if isinstance(value, _PLAIN):
        return (value,)
    if isinstance(value, Tensor):
        small = value.layout is torch.strided and value.numel() <= _MOST_VALUES
        return (f"tensor {state_digest(value):x}",) if small else None
    if isinstance(value, (*_RANDOM, np.ndarray)):
        return (f"{type(value).__name__} {state_digest(value):x}",)
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return (f"generator at {None if frame is None else frame.f_lasti}",)
    if type(value) in _GROWING:
        return (("length", len(value)),)  # type: ignore[arg-type]
    return (repr(value),) if type(value).__module__ == "itertools" else None


def _held_by(thing: object) -> Iterator[tuple[str | int, object, object]]:
    """Yield key, value and what really holds it."""
    if isinstance(thing, MethodType):
        yield from (("", one, thing) for one in (thing.__self__, thing.__func__))
    elif isinstance(thing, partial):
        yield from (("", one, thing) for one in (thing.func, *thing.args))
    elif isinstance(thing, FunctionType):
        yield from _held_by_function(thing)
    elif isinstance(thing, (dict, list, tuple, deque)):
        entries = thing.items() if isinstance(thing, dict) else enumerate(thing)
        if len(thing) <= _MOST_ENTRIES:
            yield from ((key, one, thing) for key, one in entries if type(key) in (str, int))
    elif isinstance(thing, Module):
        yield from _held_by_module(thing)
    else:
        yield from ((key, one, thing) for key, one in _variables(thing).items())


def _held_by_function(function: FunctionType) -> Iterator[tuple[str, object, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, cell
        except ValueError:
            continue  # a variable that has no value yet
    if _is_foreign(function.__module__):
        return
    for name in _names_in(function.__code__):
        value = function.__globals__.get(name)
        if name in function.__globals__ and not isinstance(value, (type, ModuleType)):
            yield name, value, function.__globals__


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names_in(one)


def _held_by_module(module: Module) -> Iterator[tuple[str, object, object]]:
    yield from ((name, one, module) for name, one in module._modules.items())
    if not _is_foreign(type(module).__module__):
        for name, value in vars(module).items():
            if name not in ("_modules", "_parameters", "_buffers", "training") and not isinstance(
                value, (Module, Optimizer)
            ):
                yield name, value, module


def _variables(thing: object) -> Mapping[str, object]:
    """Return the variables of a generator, or of an object of a class that a person wrote."""
    if isinstance(thing, GeneratorType):
        return {} if thing.gi_frame is None else thing.gi_frame.f_locals
    return vars(thing) if _is_own(thing) else {}


def _is_own(thing: object) -> bool:
    """Whether this is an object of a class that a person wrote."""
    return (
        not isinstance(thing, (type, ModuleType, Optimizer))
        and hasattr(thing, "__dict__")
        and not _is_foreign(type(thing).__module__)
    )


def _is_foreign(module: str | None) -> bool:
    """Whether code is from a package, and not the program's own."""
    name = module or ""
    if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__":
        return True
    return name.startswith(_FOREIGN)

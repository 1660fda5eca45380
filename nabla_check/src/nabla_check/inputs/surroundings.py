"""Tensors that an operator sees without being given them: closures, defaults, attributes."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator

import torch

__all__ = ["closed_over_tensors"]

_MOST_OBJECTS = 500
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)


def closed_over_tensors(function: object) -> Iterator[torch.Tensor]:
    """Yield tensors that ``function`` reaches by itself; gives up after 500 objects."""
    waiting: list[object] = [function]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _PLAIN):
            continue
        seen.add(id(found))
        if isinstance(found, torch.Tensor):
            yield found
        else:
            waiting.extend(_within(found))


def _within(found: object) -> Iterable[object]:
    if isinstance(found, types.FunctionType):
        return _of_function(found)
    if isinstance(found, types.MethodType):
        return (found.__func__, found.__self__)
    if isinstance(found, functools.partial):
        return (found.func, *found.args, *found.keywords.values())
    if isinstance(found, dict):
        return found.values()
    if isinstance(found, (list, tuple, set, frozenset)):
        return found
    return vars(found).values() if hasattr(found, "__dict__") else ()


def _of_function(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # a cell that is not filled yet
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, torch.Tensor):
            yield value

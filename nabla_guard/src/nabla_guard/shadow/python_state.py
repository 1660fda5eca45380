"""Puts back the plain Python state that a model's own code and hooks reach directly.

A forward pass that runs once more may count, append to a list or fill a dictionary outside of its
modules: in an enclosing function, in the globals of its file, in the object a hook belongs to.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType, ModuleType
from typing import cast

from torch import Tensor
from torch.nn import Module

__all__ = ["python_state_kept"]

_CONTAINERS = (list, dict, set, deque, defaultdict, OrderedDict, Counter)
_VALUES = (int, float, str, bool, type(None), tuple, frozenset)


@contextmanager
def python_state_kept(roots: Iterable[Module]) -> Iterator[None]:
    """Undo, at the end of the block, what code of these modules does to the state it reaches."""
    keeper = _StateKeeper()
    for function in _functions(roots):
        keeper.keep_function(function)
    try:
        yield
    finally:
        keeper.put_back()


def _functions(roots: Iterable[Module]) -> Iterator[object]:
    """Every hook of the modules, and the code of their classes that is not torch's."""
    classes: set[type] = set()
    for root in roots:
        for module in root.modules():
            hooks = (module._forward_hooks, module._forward_pre_hooks)
            yield from (hook for several in hooks for hook in several.values())
            yield vars(module).get("forward")
            classes |= {
                base for base in type(module).__mro__ if not base.__module__.startswith("torch.")
            }
    for found in classes - {object}:
        yield from vars(found).values()


class _StateKeeper:
    """Copies of containers, variables and attributes."""

    def __init__(self) -> None:
        self._containers: dict[int, tuple[object, object]] = {}
        self._cells: dict[int, tuple[CellType, object]] = {}
        self._globals: dict[tuple[int, str], tuple[dict[str, object], object]] = {}
        self._objects: dict[int, tuple[dict[str, object], dict[str, object]]] = {}
        self._seen: set[int] = set()

    def keep_function(self, function: object, depth: int = 0) -> None:
        """Keep what a function closes over and which plain globals it names."""
        if isinstance(function, MethodType):
            self._keep_value(function.__self__)
            function = function.__func__
        if not isinstance(function, FunctionType):
            self._keep_value(function)
            return
        if id(function) in self._seen or depth > 2:
            return
        self._seen.add(id(function))
        for cell in function.__closure__ or ():
            self._keep_cell(cell, depth)
        for name in function.__code__.co_names:
            if name in function.__globals__:
                self._keep_global(function.__globals__, name, depth)

    def put_back(self) -> None:
        """Put everything back."""
        for cell, content in self._cells.values():
            cell.cell_contents = content
        for (_, name), (names, value) in self._globals.items():
            names[name] = value
        for attributes, kept in self._objects.values():
            for name in [name for name in attributes if name not in kept]:
                del attributes[name]
            attributes.update(kept)
        for container, contents in self._containers.values():
            _restore(container, contents)

    def _keep_cell(self, cell: CellType, depth: int) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # an empty cell: its variable has no value yet
            return
        self._cells[id(cell)] = (cell, content)
        self._keep_reached(content, depth)

    def _keep_global(self, names: dict[str, object], name: str, depth: int) -> None:
        value = names[name]
        if type(value) in _VALUES:
            self._globals[id(names), name] = (names, value)
        else:
            self._keep_reached(value, depth)

    def _keep_reached(self, value: object, depth: int) -> None:
        if isinstance(value, (FunctionType, MethodType)):
            self.keep_function(value, depth + 1)
        else:
            self._keep_value(value)

    def _keep_value(self, value: object) -> None:
        if type(value) in _CONTAINERS:
            self._containers.setdefault(id(value), (value, copy.copy(value)))
        elif _is_plain_object(value):
            attributes = vars(value)
            if id(value) not in self._objects:
                self._objects[id(value)] = (attributes, dict(attributes))
                for held in tuple(attributes.values()):
                    if type(held) in _CONTAINERS:
                        self._keep_value(held)


def _is_plain_object(value: object) -> bool:
    kinds = (Tensor, Module, ModuleType, type, FunctionType)
    origin = type(value).__module__.partition(".")[0]
    return (
        not isinstance(value, kinds)
        and type(getattr(value, "__dict__", None)) is dict
        and origin not in ("torch", "nabla_guard", "nabla_core", "numpy")
    )


def _restore(container: object, contents: object) -> None:
    if isinstance(container, (list, deque)):
        container.clear()
        container.extend(cast("Iterable[object]", contents))
    elif isinstance(container, dict):
        container.clear()
        container.update(cast("dict[object, object]", contents))
    elif isinstance(container, set):
        container.clear()
        container.update(cast("set[object]", contents))

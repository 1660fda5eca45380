"""Puts back what the user's own functions write to: lists, counters, objects, generators.

A forward pass or a hook that runs once more would append to a list, count or draw once more. What a
function reaches through its closure, its defaults, the globals that it names and the object that it
is bound to is remembered, and put back; so is what the attributes and classes of modules hold.
"""

from __future__ import annotations

import copy
import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import is_not
from types import CellType, FunctionType, MethodType, ModuleType
from typing import cast

from torch import Generator, Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ..taps.structure import modules_of

__all__ = ["ReadOnce", "functions_of", "reach_kept"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = (dict, list, set, deque)
_VALUES = (int, float, str, bool, type(None), tuple, frozenset)
_OTHERS = (Module, Tensor, Optimizer, ModuleType)
_NOT_THE_USERS = frozenset({"torch", "numpy", "nabla_core", "nabla_guard", "builtins"})
_OF_EVERY_MODULE = frozenset(vars(Module()))
_MAX_DEPTH = 3
_MAX_ITEMS = 4096  # of a container whose items may be containers, too


class ReadOnce(Exception):
    """An iterator that reading once more would move on, and that cannot be copied."""


def functions_of(roots: Iterable[Module]) -> Iterator[object]:
    """Yield the functions of the user's own classes of modules, and the hooks of all modules."""
    classes: set[type] = set()
    for module in (module for root in roots for module in modules_of(root)):
        classes.add(type(module))
        attributes = vars(module)
        for name in _HOOKS:
            if hooks := attributes.get(name):
                yield from hooks.values()
        if "forward" in attributes:
            yield attributes["forward"]
    for base in {base for found in classes for base in found.__mro__}:
        if _is_the_users(base):
            yield from vars(base).values()


@contextmanager
def reach_kept(functions: Iterable[object], roots: Iterable[Module] = ()) -> Iterator[None]:
    """Put back at the end of the block what functions and modules can have written to.

    Args:
        functions: the user's own.
        roots: modules; what their attributes hold is put back, the attributes themselves are not.

    Raises:
        ReadOnce: one of them reads an iterator.
    """
    reach = _Reach()
    try:
        for function in functions:
            reach.add(function)
        for module in (module for root in roots for module in modules_of(root)):
            reach.add_module(module)
        yield
    finally:
        reach.put_back()


class _Reach:
    """What was reached, and how to put each of it back."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}
        self._undo: list[Callable[[], object]] = []

    def put_back(self) -> None:
        """Restore everything that was remembered."""
        for undo in reversed(self._undo):
            undo()

    def add(self, function: object, depth: int = 0) -> None:
        """Remember what a function reaches."""
        if isinstance(function, (staticmethod, classmethod, MethodType)):
            self._add_value(getattr(function, "__self__", None), depth)
            function = function.__func__
        if not isinstance(function, FunctionType) or self._is_known(function):
            return
        for cell in function.__closure__ or ():
            self._add_cell(cell, depth)
        for value in function.__defaults__ or ():
            self._add_value(value, depth)
        names = function.__globals__
        for name in function.__code__.co_names:
            if name in names:
                value = names[name]
                if type(value) in _VALUES:
                    self._undo.append(partial(names.__setitem__, name, value))
                self._add_value(value, depth)

    def add_module(self, module: Module) -> None:
        """Remember what the attributes of a module hold, and the counters of its class."""
        self._add_class(type(module))
        attributes = vars(module)
        for name in sorted(attributes.keys() - _OF_EVERY_MODULE):
            value = attributes[name]
            kind = type(value)
            if kind in _VALUES:
                continue
            if _reads_once(kind):
                self._undo.append(partial(attributes.__setitem__, name, value))
                attributes[name] = _copied(value)
            else:
                self._add_value(value, 0)

    def _is_known(self, value: object) -> bool:
        """Whether a value was reached before; it is kept alive, so that its identity stays."""
        known = id(value) in self._seen
        self._seen[id(value)] = value
        return known

    def _add_cell(self, cell: CellType, depth: int) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            return  # not assigned yet
        self._undo.append(partial(setattr, cell, "cell_contents", value))
        self._add_value(value, depth)

    def _add_class(self, owner: type) -> None:
        if not _is_the_users(owner) or self._is_known(owner):
            return
        for name, value in tuple(vars(owner).items()):
            if type(value) in _VALUES and not name.startswith("__"):
                self._undo.append(partial(setattr, owner, name, value))
            elif type(value) in _CONTAINERS:
                self._add_value(value, 0)

    def _add_value(self, value: object, depth: int) -> None:
        if type(value) in _VALUES or isinstance(value, _OTHERS) or depth > _MAX_DEPTH:
            return
        if isinstance(value, (FunctionType, MethodType)):
            self.add(value, depth + 1)
        elif isinstance(value, type):
            self._add_class(value)
        elif self._is_known(value):
            return
        elif type(value) in _CONTAINERS:
            self._add_container(cast("Collection[object]", value), depth)
        elif _reads_once(type(value)):
            raise ReadOnce("the model reads an iterator, which can be read only once")
        elif not self._add_generator(value) and _is_the_users(type(value)):
            self._add_object(value, depth)

    def _add_container(self, value: Collection[object], depth: int) -> None:
        """Remember the items, and those of containers inside, such as a list for each layer."""
        self._undo.append(partial(_refill, value, copy.copy(value)))
        if len(value) <= _MAX_ITEMS:
            for item in value.values() if isinstance(value, dict) else value:
                if type(item) in _CONTAINERS:
                    self._add_value(item, depth + 1)

    def _add_object(self, value: object, depth: int) -> None:
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            self._undo.append(partial(_refill, attributes, dict(attributes)))
            for held in tuple(attributes.values()):
                self._add_value(held, depth + 2)

    def _add_generator(self, value: object) -> bool:
        """Remember the state of a random generator of the user's own."""
        numpy = sys.modules.get("numpy")
        if isinstance(value, Generator):
            self._undo.append(partial(value.set_state, value.get_state()))
        elif isinstance(value, random.Random):
            self._undo.append(partial(value.setstate, value.getstate()))
        elif numpy is not None and isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            self._undo.append(partial(setattr, bits, "state", bits.state))
        else:
            return False
        return True


def _is_the_users(owner: type) -> bool:
    origin = owner.__module__.partition(".")[0]
    return origin not in _NOT_THE_USERS and origin not in sys.stdlib_module_names


def _reads_once(kind: type) -> bool:
    """Whether a type is one of iterators."""
    return hasattr(kind, "__next__")


def _copied(iterator: object) -> object:
    """Return a copy that goes on where an iterator is, without moving it.

    Raises:
        ReadOnce: it cannot be copied.
    """
    try:
        return copy.copy(iterator)
    except TypeError as error:
        raise ReadOnce("the model reads an iterator, which can be read only once") from error


def _refill(held: object, contents: object) -> None:
    """Give a container its items back; one that is as it was is not touched."""
    if isinstance(held, dict):
        before = cast("dict[object, object]", contents)
        if held.keys() != before.keys() or any(held[key] is not before[key] for key in before):
            held.clear()
            held.update(before)
    elif isinstance(held, set):
        if held != contents:
            held.clear()
            held.update(cast("set[object]", contents))
    elif isinstance(held, (list, deque)):
        items = cast("list[object]", contents)
        if len(held) != len(items) or any(map(is_not, held, items)):
            if isinstance(held, list):
                held[:] = items  # at once: another thread may be reading it
            else:
                held.clear()
                held.extend(items)

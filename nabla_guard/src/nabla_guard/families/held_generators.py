"""Random generators that a dataset holds and draws from: every worker gets a copy of each."""

from __future__ import annotations

import random
import types
from collections.abc import Iterator
from types import CodeType, FunctionType

import torch

__all__ = ["generators_in"]

_DEPTH = 3
_MAX_PARTS = 32
_DELIVER = frozenset({"__call__", "__getitem__", "__getitems__", "__iter__", "__next__", "forward"})


def generators_in(holder: object, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths of the random generators that an object, or one of its transforms, uses.

    Args:
        holder: a dataset, or what it holds.
        path: where it was found.
        depth: how many holders are around it.
    """
    for name, value in _attributes(holder):
        below = f"{path}.{name}" if path else name
        numpy_made = type(value).__module__.startswith("numpy.random")
        if numpy_made or isinstance(value, (random.Random, torch.Generator)):
            if _may_use(holder, name):
                yield below
        elif depth < _DEPTH:
            yield from generators_in(value, below, depth + 1)


def _attributes(holder: object) -> list[tuple[str, object]]:
    if isinstance(holder, (list, tuple)):
        few = holder[:_MAX_PARTS] if len(holder) <= _MAX_PARTS else ()
        return [(str(index), value) for index, value in enumerate(few)]
    if isinstance(holder, (type, types.ModuleType, torch.Tensor)):
        return []
    return list(getattr(holder, "__dict__", {}).items())


def _may_use(holder: object, name: str) -> bool:
    """Whether code that a worker runs mentions an attribute: what delivers a sample, and the
    methods that it calls. All methods but the constructor where nothing delivers samples."""
    if isinstance(holder, (list, tuple)):
        return True
    methods: dict[str, CodeType] = {}
    for owner in reversed(type(holder).__mro__):
        for label, member in vars(owner).items():
            plain = getattr(member, "fget", None) or member
            if isinstance(plain, FunctionType) and label != "__init__":
                methods[label] = plain.__code__
    waiting = [label for label in methods if label in _DELIVER] or list(methods)
    seen: set[str] = set()
    while waiting:
        label = waiting.pop()
        if label not in seen:
            seen.add(label)
            if _mentions(methods[label], name):
                return True
            waiting += [other for other in methods if _mentions(methods[label], other)]
    return False


def _mentions(code: CodeType, name: str) -> bool:
    if name in code.co_names or name in code.co_consts or "__dict__" in code.co_names:
        return True
    inner = [found for found in code.co_consts if isinstance(found, CodeType)]
    return any(_mentions(found, name) for found in inner)

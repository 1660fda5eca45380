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
    """Whether any code of the holder's class, its constructor apart, mentions an attribute."""
    if isinstance(holder, (list, tuple)):
        return True
    methods = [
        member
        for owner in type(holder).__mro__
        for label, member in vars(owner).items()
        if label != "__init__"
    ]
    plain = [getattr(member, "fget", None) or member for member in methods]
    codes = [member.__code__ for member in plain if isinstance(member, FunctionType)]
    return any(_mentions(code, name) for code in codes)


def _mentions(code: CodeType, name: str) -> bool:
    if name in code.co_names or name in code.co_consts or "__dict__" in code.co_names:
        return True
    inner = [found for found in code.co_consts if isinstance(found, CodeType)]
    return any(_mentions(found, name) for found in inner)

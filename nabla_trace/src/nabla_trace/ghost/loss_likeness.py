"""What a loss is by its content: the same lambda, made again at every step, is the same loss.

The identity of an object does not do: it is given to another one as soon as the first is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from types import FunctionType, MethodType

import torch

__all__ = ["loss_likeness"]

_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, type)
_DEEPEST = 3


def loss_likeness(loss_fn: Callable[..., object] | None) -> Hashable:
    """Return what two losses share when they run the same operations.

    Of a function: its code and the plain values in its closure, its defaults and the globals that
    it names. Of an object: its type and its plain attributes. Tensors count by shape.
    """
    return _like(loss_fn, 0)


def _like(value: object, depth: int) -> Hashable:
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, torch.Tensor):
        return torch.Tensor, value.shape, value.dtype
    if depth > _DEEPEST:
        return str(type(value))
    if isinstance(value, FunctionType):
        return _like_function(value, depth + 1)
    if isinstance(value, MethodType):
        return value.__func__.__code__, _like(value.__self__, depth + 1)
    if isinstance(value, partial):
        parts = (value.func, value.args, value.keywords)
        return partial, tuple([_like(part, depth + 1) for part in parts])
    if isinstance(value, (list, tuple)):
        return type(value), tuple([_like(part, depth + 1) for part in value])
    if isinstance(value, Mapping):
        return type(value), _like_items(value, depth + 1)
    return type(value), _like_items(getattr(value, "__dict__", {}), depth + 1)


def _like_items(items: Mapping[str, object] | Mapping[object, object], depth: int) -> Hashable:
    return tuple([(str(name), _like(part, depth)) for name, part in items.items()])


def _like_function(function: FunctionType, depth: int) -> Hashable:
    code = function.__code__
    named = [(name, function.__globals__.get(name)) for name in code.co_names]
    return (
        code,
        tuple([_like(_content(cell), depth) for cell in function.__closure__ or ()]),
        tuple([_like(default, depth) for default in function.__defaults__ or ()]),
        _like_items(function.__kwdefaults__ or {}, depth),
        tuple([(name, value) for name, value in named if isinstance(value, _PLAIN)]),
    )


def _content(cell: object) -> object:
    try:
        return getattr(cell, "cell_contents", None)
    except ValueError:  # not filled yet
        return None

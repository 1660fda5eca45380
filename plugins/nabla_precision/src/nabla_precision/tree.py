"""Tensors inside what modules are given and return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["Tree", "dense", "is_real", "mapped", "tensors_in"]


Tree = TypeVar("Tree")

_PLAIN = frozenset({int, float, bool, str, type(None)})


def is_real(found: object) -> bool:
    """Whether ``found`` is a tensor of floating-point numbers that holds values of its own."""
    return (
        isinstance(found, Tensor)
        and found.is_floating_point()
        and not found.is_meta
        and not found.is_sparse
    )


def dense(grad: Tensor) -> Tensor:
    """Return a gradient, detached; that of a sparse embedding with all its rows."""
    return grad.detach().to_dense() if grad.is_sparse else grad.detach()


def tensors_in(tree: object) -> list[Tensor]:
    """Return the floating-point tensors in nested tuples, lists and dicts, in a fixed order."""
    found: list[Tensor] = []
    _gather(tree, found)
    return found


def mapped(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """Return ``tree`` with every floating-point tensor changed; the rest is the same object."""
    return cast("Tree", _changed(tree, change))


def _gather(tree: object, found: list[Tensor]) -> None:
    # arguments and results are plain nearly always; the general way costs as much as an operation
    kind = type(tree)
    if kind is tuple or kind is list:
        for part in cast("list[object]", tree):
            _gather(part, found)
    elif kind is dict:
        for part in cast("dict[object, object]", tree).values():
            _gather(part, found)
    elif isinstance(tree, Tensor):
        if is_real(tree):
            found.append(tree)
    elif kind not in _PLAIN:
        found.extend(leaf for leaf in tree_flatten(tree)[0] if is_real(leaf))


def _changed(tree: object, change: Callable[[Tensor], Tensor]) -> object:
    kind = type(tree)
    if kind is tuple or kind is list:
        parts = [_changed(part, change) for part in cast("list[object]", tree)]
        return tuple(parts) if kind is tuple else parts
    if kind is dict:
        named = cast("dict[object, object]", tree)
        return {name: _changed(part, change) for name, part in named.items()}
    if isinstance(tree, Tensor):
        return change(tree) if is_real(tree) else tree
    if kind in _PLAIN:
        return tree
    leaves, form = tree_flatten(tree)
    return tree_unflatten([change(one) if is_real(one) else one for one in leaves], form)

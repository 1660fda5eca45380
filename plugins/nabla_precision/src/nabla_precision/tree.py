"""Tensors inside what modules are given and return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["Tree", "dense", "is_real", "mapped", "tensors_in"]


Tree = TypeVar("Tree")


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
    return [leaf for leaf in tree_flatten(tree)[0] if is_real(leaf)]


def mapped(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """Return ``tree`` with every floating-point tensor changed; the rest is the same object."""
    leaves, form = tree_flatten(tree)
    changed = [change(leaf) if is_real(leaf) else leaf for leaf in leaves]
    return cast("Tree", tree_unflatten(changed, form))

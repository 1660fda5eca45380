"""Products of two trained factors that are both exactly zero: neither gets a gradient, ever.

The derivative to each factor is the other one. An adapter starts with one of its two factors at
zero; with both at zero it stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor
from torch.autograd.graph import Node

from .graph import name_of, saved_tensor

__all__ = ["ZERO_PRODUCT", "zero_products"]

ZERO_PRODUCT = "a product of two zeros"
"""Stands for the operator where a derivative is zero for this reason."""

_FACTORS = {
    "Addmm": ("mat1", "mat2"),
    "Baddbmm": ("batch1", "batch2"),
    "Bmm": ("self", "mat2"),
    "Mm": ("self", "mat2"),
    "Mul": ("self", "other"),
}


def zero_products(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the products both of whose factors take a gradient and are zero; reads tensors."""
    for node in nodes:
        names = _FACTORS.get(name_of(node))
        if names is None or any(child is None for child, _ in node.next_functions[-2:]):
            continue
        factors = [saved_tensor(node, name) for name in names]
        if all(map(_is_zero, factors)):
            yield node


def _is_zero(factor: Tensor | None) -> bool:
    return factor is not None and factor.numel() > 0 and not bool(factor.detach().any())

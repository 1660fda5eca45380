"""Reading the graph of a loss: operators, the chain that feeds one, and what they saved.

Nothing is patched, so it does not matter how the user's code imported a loss. Saved tensors are
read
only while no saved-tensor hook is in use: unpacking one would, for example, rerun a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor
from torch.autograd.graph import Node

__all__ = [
    "FLAT",
    "RESHAPES",
    "SELECTS",
    "children",
    "leaf_of",
    "name_of",
    "nodes_from",
    "saved_int",
    "saved_sizes",
    "saved_tensor",
    "shape_of",
    "skip",
]

FLAT = frozenset(
    {"Round", "Floor", "Ceil", "Trunc", "Sign", "Sgn", "Heaviside", "Fix"}
    | {"Bernoulli", "Normal", "Poisson"}
)
"""Operators whose derivative is zero wherever it exists, or that torch gives none: draws."""

RESHAPES = frozenset(
    {
        "Alias",
        "Clone",
        "Permute",
        "ReshapeAlias",
        "Squeeze",
        "T",
        "ToCopy",
        "Transpose",
        "UnsafeView",
        "Unsqueeze",
        "View",
    }
)
"""Operators that keep every value and only arrange them anew."""

SELECTS = frozenset({"Expand", "Index", "IndexSelect", "Select", "Slice", "Split", "Unbind"})
"""Operators that pick or repeat values and change none."""

_SUFFIX = re.compile(r"Backward\d*$")
_NAMES: dict[str, str] = {}
_MAX_NODES = 20_000
_MAX_INT = 1 << 63


def name_of(node: Node) -> str:
    """Return the operator's name without ``Backward0``."""
    full = node.name()
    short = _NAMES.get(full)
    if short is None:
        short = _NAMES[full] = _SUFFIX.sub("", full)
    return short


def children(node: Node) -> list[Node]:
    """Return the nodes that made its differentiable inputs, in order."""
    return [child for child, _ in node.next_functions if child is not None]


def leaf_of(node: Node) -> Tensor | None:
    """Return the leaf tensor that a node accumulates into, if it is such a node."""
    leaf = getattr(node, "variable", None)
    return leaf if isinstance(leaf, Tensor) else None


def nodes_from(
    roots: Sequence[Node], *, stop: Callable[[Node], bool] | None = None
) -> Iterator[Node]:
    """Yield each node below ``roots`` once; nodes for which ``stop`` holds are left out."""
    seen: set[Node] = set()
    stack = [root for root in roots if stop is None or not stop(root)]
    while stack and len(seen) < _MAX_NODES:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        below = children(node)
        stack.extend(below if stop is None else [child for child in below if not stop(child)])


def skip(node: Node | None, names: frozenset[str]) -> Node | None:
    """Return the first node from ``node`` down its first input that is not one of ``names``."""
    while node is not None and name_of(node) in names:
        node = node.next_functions[0][0] if node.next_functions else None
    return node


def shape_of(node: Node) -> tuple[int, ...] | None:
    """Return the shape of what the operator computed (its first output)."""
    metadata = getattr(node, "_input_metadata", None)
    try:
        return tuple(int(length) for length in metadata[0].shape) if metadata else None
    except (TypeError, RuntimeError):  # symbolic or nested
        return None


def saved_tensor(node: Node, name: str) -> Tensor | None:
    """Return a tensor that the operator saved, or ``None`` when it was freed or never saved."""
    try:
        found = getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None
    return found if isinstance(found, Tensor) else None


def saved_int(node: Node, name: str) -> int | None:
    """Return an integer that the operator saved; torch shows negative ones as 64-bit unsigned."""
    found = getattr(node, f"_saved_{name}", None)
    if not isinstance(found, int):
        return None
    return found - 2 * _MAX_INT if found >= _MAX_INT else found


def saved_sizes(node: Node) -> tuple[int, ...] | None:
    """Return the shape of an operator's input, where it is saved."""
    found = getattr(node, "_saved_self_sym_sizes", None)
    return tuple(int(length) for length in found) if isinstance(found, tuple) else None

"""Who wrote the derivatives in a graph: torch itself, or somebody whose code needs more tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch

__all__ = ["has_own_derivatives", "nodes_of"]

_MOST_NODES = 2_000
_BUILT_IN = re.compile(r"\w+Backward\d+|torch::autograd::(AccumulateGrad|CopyBackwards|CopySlices)")


def nodes_of(tensors: Sequence[torch.Tensor]) -> Iterator[torch.autograd.graph.Node]:
    """Yield the nodes of the graph behind ``tensors``, each once, at most 2,000."""
    waiting = [tensor.grad_fn for tensor in tensors]
    seen: set[torch.autograd.graph.Node] = set()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(parent for parent, _ in node.next_functions)


def has_own_derivatives(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a node is not one of torch's generated formulas: a Python or C++ custom function."""
    return any(_BUILT_IN.fullmatch(node.name()) is None for node in nodes_of(tensors))

"""Weights whose gradient is one product of two matrices, found in the graph.

The inner product of two such gradients follows from the two factors: with ``G_k = L_k^T X`` it is
``<L_l, X X^T L_k>``, and no gradient of the size of the weight has to be made. The same identity is
behind ghost norms (Li et al. 2021, arXiv 2110.05679), there for samples and here for losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

__all__ = ["WeightProduct", "weight_products"]

_PLACES = {"AddmmBackward0": 2, "MmBackward0": 1}
"""Node of a product → where its second matrix stands among its inputs."""

Consumers = Mapping[Node, list[tuple[Node, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightProduct:
    """The use of a weight.

    Attributes:
        edge: output of the product, shape ``[M, P]``.
        given: ``X``, the other factor, shape ``[M, Q]``.
    """

    edge: GradientEdge
    given: Tensor

    def gram(self, rows: Tensor) -> Tensor:
        """Return the inner products ``[K, K]`` of the weight's gradients.

        In float64 where there is one: where the parts of a gradient cancel, little is left of
        float32.

        Args:
            rows: gradients at the product's output, ``[K, M, P]``.
        """
        wide = torch.float64 if rows.device.type != "mps" else torch.float32
        given, rows = self.given.to(wide), rows.to(wide)
        through = torch.matmul(given @ given.mT, rows)
        return (through.flatten(1) @ rows.flatten(1).mT).cpu().double()


def weight_products(
    value: Tensor, parameters: Mapping[str, Tensor], losses: int
) -> dict[str, WeightProduct]:
    """Return the weights that are used in one product only, where their factors are the smaller.

    Args:
        value: where the gradients start.
        parameters: name → leaf.
        losses: number of gradients.
    """
    consumers, leaves = _graph_of(value)
    found = {}
    for name, leaf in parameters.items():
        node = leaves.get(id(leaf))
        if node is None or leaf.dim() != 2 or leaf._backward_hooks:
            continue  # a hook may change the gradient, which the factors do not show
        product = _product_of(node, consumers)
        if product is not None and _is_cheaper(product.given.shape[0], leaf.shape, losses):
            found[name] = product
    return found


def _graph_of(value: Tensor) -> tuple[Consumers, dict[int, Node]]:
    """Return who uses the result of each node, and the node of each leaf by the leaf's identity."""
    consumers: dict[Node, list[tuple[Node, int]]] = {}
    leaves: dict[int, Node] = {}
    queue = [value.grad_fn]
    while queue:
        node = queue.pop()
        if node is None:
            continue
        for place, (child, _) in enumerate(node.next_functions):
            if child is None:
                continue
            if child not in consumers:
                consumers[child] = []
                queue.append(child)
                variable = getattr(child, "variable", None)
                if variable is not None:
                    leaves[id(variable)] = child
            consumers[child].append((node, place))
    return consumers, leaves


def _product_of(leaf: Node, consumers: Consumers) -> WeightProduct | None:
    user, place = _only_user(leaf, consumers)
    transposed = user is not None and user.name() == "TBackward0"
    if user is not None and transposed:
        user, place = _only_user(user, consumers)
    if user is None or not transposed or _PLACES.get(user.name()) != place:
        return None
    if any(getattr(user, name, 1) != 1 for name in ("_saved_alpha", "_saved_beta")):
        return None
    try:
        packed = getattr(user, "_raw_saved_mat1", None)
        if getattr(packed, "unpack_hook", None) is not None:
            return None  # a checkpoint would run the whole block again for each of its weights
        given = getattr(user, "_saved_mat1", None)
    except RuntimeError:  # written in place since, or freed
        return None
    if not isinstance(given, Tensor) or given.dim() != 2 or not given.is_floating_point():
        return None
    return WeightProduct(edge=GradientEdge(user, 0), given=given.detach())


def _only_user(node: Node, consumers: Consumers) -> tuple[Node | None, int]:
    users = consumers.get(node, [])
    return users[0] if len(users) == 1 else (None, 0)


def _is_cheaper(height: int, shape: torch.Size, losses: int) -> bool:
    """Whether products of factors of this height take at most half of those of gradients.

    Half, as they are made in float64.
    """
    outputs, inputs = shape
    factors = height * (inputs + losses * outputs)
    return 2 * factors <= losses * outputs * inputs

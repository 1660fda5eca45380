"""Inner products of the gradients of several losses, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .loss_products import weight_products

__all__ = ["gram_of", "grams_at", "leaves_of", "shared_rows"]

_SPLIT_FROM = 1_000_000
"""Elements of all gradients together from which the parameters are taken in two halves: the
gradients of one half exist at a time, for one more walk through the later layers."""


def shared_rows(losses: Sequence[Tensor], shared: Tensor) -> Tensor:
    """Return the gradient of each loss at the shared representation, ``[K, *shared]``.

    A loss that does not depend on it has the gradient zero.
    """
    rows = []
    for loss in losses:
        grad = None
        if loss.requires_grad:
            (grad,) = torch.autograd.grad(loss, shared, retain_graph=True, allow_unused=True)
        rows.append(torch.zeros_like(shared) if grad is None else grad)
    return torch.stack(rows)


def gram_of(rows: Tensor) -> Tensor:
    """Return the real inner products ``[K, K]`` of ``K`` gradients of any shape and dtype."""
    dense = rows.to_dense() if rows.is_sparse else rows
    real = torch.view_as_real(dense) if dense.is_complex() else dense
    flat = real.flatten(1) if real.dim() > 1 else real.unsqueeze(1)
    wide = flat.to(torch.promote_types(flat.dtype, torch.float32))
    return (wide @ wide.T).double().cpu()


def grams_at(
    losses: Sequence[Tensor], parameters: Mapping[str, Tensor], shared: Tensor | None = None
) -> dict[str, Tensor]:
    """Return for each parameter the inner products of the losses' gradients, ``[K, K]``.

    The graph is kept for the user's own backward, and no ``.grad`` is touched.

    Args:
        losses: ``K`` scalars.
        parameters: name → leaf.
        shared: where all losses meet; what lies before it is walked for several losses at once.
    """
    live = [index for index, loss in enumerate(losses) if loss.requires_grad]
    found = {
        name: torch.zeros(len(losses), len(losses), dtype=torch.float64) for name in parameters
    }
    if not live:
        return found
    place = torch.tensor(live, dtype=torch.long)
    value, rows = _seeds([losses[index] for index in live], shared)
    products = weight_products(value, parameters, len(live))
    others = {name: leaf for name, leaf in parameters.items() if name not in products}
    for names in _halves(others, len(live)):
        wanted = [product.edge for product in products.values()]
        wanted += [get_gradient_edge(others[name]) for name in names]
        grads = list(_batched(value, wanted, rows))
        for name in [*products, *names]:
            grad = grads.pop(0)
            if grad is not None:
                gram = products[name].gram(grad) if name in products else gram_of(grad)
                found[name][place[:, None], place[None, :]] = gram
        products = {}
    return found


def leaves_of(losses: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the leaves that the losses depend on, named by their order in the graph."""
    queue = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    seen, found = set(queue), []
    while queue:
        node = queue.pop(0)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            found.append(variable)
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                queue.append(child)
    return {f"leaf {index} {tuple(leaf.shape)}": leaf for index, leaf in enumerate(found)}


def _seeds(losses: list[Tensor], shared: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return a value and one cotangent per loss, ``[K, *value]``."""
    if shared is not None:
        return shared, shared_rows(losses, shared)
    whole = torch.stack([loss.reshape(()) for loss in losses])
    return whole, torch.eye(len(losses), dtype=whole.dtype, device=whole.device)


def _halves(parameters: Mapping[str, Tensor], losses: int) -> list[list[str]]:
    """Return the names in one or two groups; the later layers first."""
    names = list(parameters)
    sizes = [parameters[name].numel() for name in names]
    total, count = sum(sizes), 0
    if losses < 3 or total * losses < _SPLIT_FROM or len(names) < 2:
        return [names]
    for index, size in enumerate(sizes):
        count += size
        if 2 * count >= total:
            cut = min(index + 1, len(names) - 1)
            return [names[cut:], names[:cut]]
    return [names]


def _batched(
    value: Tensor, wanted: Sequence[GradientEdge], rows: Tensor
) -> tuple[Tensor | None, ...]:
    if not wanted:
        return ()
    try:
        return torch.autograd.grad(
            value, wanted, rows, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
    except RuntimeError:  # an operator without a batching rule
        singles = [
            torch.autograd.grad(value, wanted, row, retain_graph=True, allow_unused=True)
            for row in rows
        ]
    return tuple(_stacked(parts) for parts in zip(*singles, strict=True))


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    return torch.stack([torch.zeros_like(known) if part is None else part for part in parts])

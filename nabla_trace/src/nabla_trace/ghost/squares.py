"""Squared norms of gradients, without keeping the gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..host_reads import on_host
from .tolerance import norm_of

__all__ = ["squares_by_autograd"]

_SMALL = 4096
"""Gradients of fewer elements are not worth a placeholder."""


def squares_by_autograd(
    values: Sequence[Tensor],
    cotangents: Sequence[Tensor] | None,
    parameters: Mapping[str, Tensor],
    *,
    retain_graph: bool = False,
    inner: Callable[[], bool] = bool,
) -> dict[str, float]:
    """Run backward; each gradient is measured and dropped as soon as it is there.

    Args:
        values: outputs to differentiate.
        cotangents: their cotangents; ``None`` for scalars.
        parameters: name → leaf.
        retain_graph: whether the graph is needed again.
        inner: whether a gradient of another, nested pass arrives, which is none of ours.

    Returns:
        Name → squared norm, for each parameter that was reached.
    """
    norms: dict[str, Tensor] = {}

    def measure(name: str) -> Callable[[Tensor], Tensor | None]:
        def hook(grad: Tensor) -> Tensor | None:
            if inner():
                return None
            norms[name] = norm_of(grad.detach())
            if grad.is_sparse or grad.numel() < _SMALL:
                return None
            return grad.new_zeros(()).expand_as(grad)

        return hook

    handles = [
        tensor.register_hook(measure(name))  # type: ignore[no-untyped-call]
        for name, tensor in parameters.items()
    ]
    try:
        torch.autograd.grad(
            list(values),
            list(parameters.values()),
            None if cotangents is None else list(cotangents),
            retain_graph=retain_graph,
            allow_unused=True,
        )
    finally:
        for handle in handles:
            handle.remove()
    return {name: norm**2 for name, norm in zip(norms, on_host(list(norms.values())), strict=True)}

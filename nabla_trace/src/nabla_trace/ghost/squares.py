"""Squared norms of gradients, without keeping the gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..host_reads import on_host
from .tolerance import square_of

__all__ = ["squares_by_autograd"]

_SMALL = 4096
"""Gradients of fewer elements may as well be kept until the end."""

_PLAIN = (torch.float32, torch.float64)


def squares_by_autograd(
    values: Sequence[Tensor],
    cotangents: Sequence[Tensor] | None,
    parameters: Mapping[str, Tensor],
    *,
    retain_graph: bool = False,
    inner: Callable[[], bool] = bool,
) -> dict[str, float]:
    """Run backward; each large gradient is measured and dropped as soon as it is there.

    Args:
        values: outputs to differentiate.
        cotangents: their cotangents; ``None`` for scalars.
        parameters: name → leaf.
        retain_graph: whether the graph is needed again.
        inner: whether a gradient of another, nested pass arrives, which is none of ours.

    Returns:
        Name → squared norm, for each parameter that was reached.
    """
    squares: dict[str, Tensor] = {}
    nothing: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def measure(name: str) -> Callable[[Tensor], Tensor | None]:
        def hook(grad: Tensor) -> Tensor | None:
            if grad.is_sparse or inner():
                return None
            squares[name] = square_of(grad)
            kind = grad.dtype, grad.device
            if kind not in nothing:
                nothing[kind] = grad.new_zeros(())
            return nothing[kind].expand(grad.shape)

        return hook

    handles = [
        tensor.register_hook(measure(name))  # type: ignore[no-untyped-call]
        for name, tensor in parameters.items()
        if tensor.numel() >= _SMALL
    ]
    try:
        grads = torch.autograd.grad(
            list(values),
            list(parameters.values()),
            None if cotangents is None else list(cotangents),
            retain_graph=retain_graph,
            allow_unused=True,
        )
    finally:
        for handle in handles:
            handle.remove()
    return _on_host(squares, dict(zip(parameters, grads, strict=True)))


def _on_host(squares: Mapping[str, Tensor], grads: Mapping[str, Tensor | None]) -> dict[str, float]:
    """Return what is measured, and the squared norms of gradients that are not yet, at once."""
    left = {n: g for n, g in grads.items() if g is not None and n not in squares}
    plain = {name: grad for name, grad in left.items() if _is_plain(grad)}
    others = {name: square_of(grad) for name, grad in left.items() if name not in plain}
    measured = {**squares, **others}
    norms = torch._foreach_norm(list(plain.values())) if plain else ()
    found = on_host([*measured.values(), *norms])
    lengths = found[len(measured) :]
    result = dict(zip(measured, found, strict=False))
    return result | {name: norm**2 for name, norm in zip(plain, lengths, strict=True)}


def _is_plain(grad: Tensor) -> bool:
    return grad.dtype in _PLAIN and not grad.is_sparse

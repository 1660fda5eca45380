"""Inner products, norms and random directions of lists of tensors, real or complex."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

__all__ = [
    "alone",
    "as_vector",
    "inner",
    "norm_of_products",
    "normal_like",
    "normals_like",
    "projection",
    "size_of",
    "steps_for",
]


def as_vector(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all elements as one real float64 vector; complex ones as pairs.

    The dot product of two such vectors is the real inner product.
    """
    parts = []
    for tensor in tensors:
        flat = tensor.detach() if tensor.requires_grad else tensor
        flat = torch.view_as_real(flat.resolve_conj()) if flat.is_complex() else flat
        flat = flat.reshape(-1)
        parts.append(flat if flat.dtype is torch.float64 else flat.to(torch.float64))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def projection(
    left: Iterable[torch.Tensor | None], right: Iterable[torch.Tensor | None]
) -> tuple[float, float]:
    """Return :func:`inner` and :func:`norm_of_products` at once."""
    products = _products(left, right)
    if products is None:
        return 0.0, 0.0
    return float(products.sum()), float(torch.linalg.vector_norm(products))


def inner(left: Iterable[torch.Tensor | None], right: Iterable[torch.Tensor | None]) -> float:
    """Real part of the sum of ``conj(left) * right``; a missing tensor counts as zeros."""
    products = _products(left, right)
    return 0.0 if products is None else float(products.sum())


def norm_of_products(
    left: Iterable[torch.Tensor | None], right: Iterable[torch.Tensor | None]
) -> float:
    """Root of the summed squares of the elementwise products: the usual size of :func:`inner`."""
    return projection(left, right)[1]


def normal_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw standard normal numbers of the same shape, dtype and device."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    drawn = torch.randn(tensor.shape, dtype=wide, generator=generator)
    if tensor.dtype is wide and tensor.device.type == "cpu":
        return drawn
    return drawn.to(dtype=tensor.dtype, device=tensor.device)


def normals_like(
    tensors: Iterable[torch.Tensor], generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Draw one tensor of :func:`normal_like` for each."""
    return tuple(normal_like(tensor, generator) for tensor in tensors)


def steps_for(
    values: Sequence[torch.Tensor], generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Draw a direction whose elements are about as large as the operand's own."""
    directions = []
    for value in values:
        point = value.detach()
        size = size_of(point)
        directions.append(normal_like(point, generator).mul_(size))
    return tuple(directions)


def alone(which: int, count: int, direction: torch.Tensor) -> list[torch.Tensor | None]:
    """Return directions for ``count`` operands of which only ``which`` moves."""
    return [direction if index == which else None for index in range(count)]


def size_of(point: torch.Tensor) -> float:
    """Root mean square of the elements, kept between 1e-3 and 1e3; 1 where it is not finite."""
    rms = float(torch.linalg.vector_norm(point)) / max(point.numel(), 1) ** 0.5
    return min(max(rms, 1e-3), 1e3) if math.isfinite(rms) else 1.0


def _products(
    left: Iterable[torch.Tensor | None], right: Iterable[torch.Tensor | None]
) -> torch.Tensor | None:
    """Return the real products of all elements; a complex element makes two."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    if any(a.is_complex() is not b.is_complex() for a, b in pairs):
        pairs = [
            (a, b) if a.is_complex() and b.is_complex() else (a.real, b.real) for a, b in pairs
        ]
    return as_vector([a for a, _ in pairs]) * as_vector([b for _, b in pairs])

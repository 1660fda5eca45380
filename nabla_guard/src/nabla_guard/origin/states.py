"""How bad a tensor is: finite, holding an infinity, holding a NaN; and where exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..loop.exact import sums_up

__all__ = ["FINITE", "INF", "NAN", "bad_mask", "fresh_mask", "limits_of", "state_of", "values_of"]

FINITE, INF, NAN = 0, 1, 2
_PLAIN = (Tensor, torch.nn.Parameter)
_SUMMED = frozenset({torch.float32, torch.float64, torch.bfloat16})


def values_of(tensor: Tensor) -> Tensor | None:
    """Return the stored real values of any floating-point tensor, ``None`` for all others."""
    if type(tensor) not in _PLAIN and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_meta or tensor.is_quantized or not tensor.numel():
        return None
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.values()
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return None
    return tensor.to(torch.float32) if tensor.itemsize < 2 else tensor


def limits_of(tensor: Tensor) -> tuple[float, float] | None:
    """Return minimum and maximum; NaN propagates."""
    values = values_of(tensor.detach())
    if values is None or not values.numel():
        return None
    low, high = torch.aminmax(values)
    if values.is_cpu:
        return low.item(), high.item()
    found = torch.stack((low, high)).tolist()  # one wait for the device
    return found[0], found[1]


def state_of(tensor: Tensor) -> int:
    """Return :data:`FINITE`, :data:`INF` or :data:`NAN`."""
    plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_meta
    bare = tensor.detach() if tensor.requires_grad else tensor
    if plain and tensor.dtype in _SUMMED and sums_up(bare):
        return FINITE
    limits = limits_of(tensor)
    if limits is None:
        return FINITE
    low, high = limits
    if -math.inf < low and high < math.inf:  # never true for NaN
        return FINITE
    if math.isnan(low) or math.isnan(high):
        return NAN
    return INF


def bad_mask(tensor: Tensor) -> Tensor | None:
    """Return where a tensor is not finite, in its own shape where it has one."""
    values = values_of(tensor.detach())
    return None if values is None else ~torch.isfinite(values)


def fresh_mask(inputs: Sequence[Tensor], output: Tensor) -> Tensor | None:
    """Return where the output of a pointwise op is bad although all its inputs are finite there.

    Returns:
        ``None`` when the shapes do not broadcast, or nothing is fresh.
    """
    fresh = bad_mask(output)
    if fresh is None:
        return None
    for tensor in inputs:
        bad = bad_mask(tensor)
        if bad is None:
            continue
        try:
            fresh = fresh & ~bad.to(fresh.device).expand(fresh.shape)
        except RuntimeError:
            return None
    return fresh if bool(fresh.any()) else None

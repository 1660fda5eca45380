"""How far a low-precision tensor is from its float64 mirror."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["flushed_share", "magnitude", "relative_error"]

_CHUNK = 1 << 18
_FEW = 64


def relative_error(low: Tensor, mirror: Tensor, limit: float = 0.0) -> float:
    """Return the largest ``|low - mirror| / (|mirror| + rms(mirror))`` over all elements.

    An element far below the typical size of its tensor is held against that size: its own digits
    are lost in any dtype. Values beyond the range of the dtype count as the infinity they become.

    Args:
        low: the value that the program computed.
        mirror: shape as ``low``, float64.
        limit: an upper bound of the error is enough where it is below this.
    """
    if not low.numel():
        return 0.0
    typical = magnitude(mirror)
    worst = _largest_gap(low.detach(), mirror)
    if worst == 0.0:
        return 0.0
    if math.isfinite(worst) and 0.0 < typical < math.inf and worst / typical < limit:
        return worst / typical
    return _careful_error(low.detach(), mirror)


def _largest_gap(low: Tensor, mirror: Tensor) -> float:
    """The largest difference, a few rows at a time: it needs no third copy of a large tensor."""
    if low.dim() < 2 or low.numel() <= _CHUNK or low.shape[0] > low.numel() // _FEW:
        rows: tuple[tuple[Tensor, Tensor], ...] = ((low, mirror),)
    else:
        count = max(1, _CHUNK * low.shape[0] // low.numel())
        rows = tuple(zip(torch.split(low, count), torch.split(mirror, count), strict=True))
    worst = 0.0
    for some, exact in rows:
        lowest, highest = torch.aminmax(torch.sub(some, exact))
        largest = max(-float(lowest), float(highest))
        if not largest <= worst:  # a NaN is the worst of all
            worst = largest
        if math.isnan(worst):
            break
    return worst


def _careful_error(low: Tensor, mirror: Tensor) -> float:
    largest = torch.finfo(low.dtype).max if low.dtype.is_floating_point else math.inf
    ranged = torch.where(mirror.abs() > largest, torch.copysign(_infinity(mirror), mirror), mirror)
    exact = low.double()
    alike = (exact == ranged) | (exact.isnan() & ranged.isnan())
    finite = ranged.isfinite()
    ordinary = ranged[finite]
    typical = magnitude(ordinary) if ordinary.numel() else 0.0
    error = (exact - ranged).abs() / (ranged.abs() + typical)
    error = torch.where(finite & exact.isfinite(), error, _infinity(error))
    return float(torch.where(alike, 0.0, error).nan_to_num(nan=math.inf, posinf=math.inf).amax())


def magnitude(tensor: Tensor) -> float:
    """Return the root mean square of all elements."""
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(max(tensor.numel(), 1))


def flushed_share(low: Tensor, mirror: Tensor) -> float:
    """Return the share of the non-zero mirrored values that are too small for the dtype."""
    nonzero = mirror != 0.0
    count = int(nonzero.sum())
    if not count:
        return 0.0
    return int((nonzero & (mirror.abs() < torch.finfo(low.dtype).tiny)).sum()) / count


def _infinity(like: Tensor) -> Tensor:
    return torch.full_like(like, math.inf)

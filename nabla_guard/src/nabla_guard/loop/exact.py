"""Exact looks at tensors on the cold path: what is not finite, and what was never trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..facts import TensorFault

__all__ = ["fault_in", "looks_fresh", "sample_of", "sums_up", "tensors_in"]

_SAMPLE = 64
_FRESH_SAMPLE = 4096
_DEPTH = 4


def sums_up(values: Tensor) -> bool:
    """Whether the sum is finite, and so is every value; that of finite values may overflow."""
    return math.isfinite(values.sum().item())


def fault_in(name: str, tensor: Tensor) -> TensorFault | None:
    """Return what is not finite in ``tensor``, or ``None`` when every element is finite."""
    values = tensor.detach()
    if hasattr(values, "to_local"):
        values = values.to_local()
    if values.is_sparse:
        values = values._values()
    if values.is_meta or not (values.is_floating_point() or values.is_complex()):
        return None
    if values.itemsize < 2:
        values = values.to(torch.float32)
    if values.is_floating_point() and values.numel() and sums_up(values):
        return None
    finite = torch.isfinite(values)
    if bool(finite.all()):
        return None
    first = (~finite).nonzero()[0].tolist()
    nan = int(torch.isnan(values).sum())
    return TensorFault(
        name=name,
        nan=nan,
        inf=int((~finite).sum()) - nan,
        size=values.numel(),
        index=tuple(first),
        dtype=str(values.dtype).removeprefix("torch."),
    )


def sample_of(tensor: Tensor, count: int = _SAMPLE) -> Tensor:
    """Return a copy of at most ``count`` evenly spaced elements."""
    flat = tensor.detach().reshape(-1)
    stride = max(1, flat.numel() // count)
    return flat[::stride][:count].clone()


def looks_fresh(tensor: Tensor) -> bool:
    """Whether values look drawn from a uniform or normal distribution around zero.

    The usual initialisations draw from one of the two. Weights that were trained have heavier
    tails;
    hand-set values (zeros, ones, an identity) repeat. With fewer than 16 elements nothing is said.
    The fourth standardised moment is 1.8 for a uniform and 3 for a normal distribution, with a
    sampling error of about ``sqrt(24 / n)``.
    """
    values = sample_of(tensor, _FRESH_SAMPLE).double()
    count = values.numel()
    if count < 16 or not bool(torch.isfinite(values).all()):
        return False
    if len(set(values.tolist())) <= 0.9 * count:
        return False
    spread = float(values.std())
    centre = float(values.mean())
    if spread == 0.0 or abs(centre) > 4.0 * spread / math.sqrt(count):
        return False
    kurtosis = float(((values - centre) / spread).pow(4).mean())
    return 1.3 <= kurtosis <= 3.0 + 4.0 * math.sqrt(24.0 / count)


def tensors_in(value: object, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors inside nested tuples, lists and mappings, with the path to each."""
    if isinstance(value, Tensor):
        yield name, value
    elif depth < _DEPTH and isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}[{key!r}]" if name else str(key), depth + 1)
    elif depth < _DEPTH and isinstance(value, (tuple, list)):
        for index, item in enumerate(value[:32]):
            yield from tensors_in(item, f"{name}[{index}]" if name else f"[{index}]", depth + 1)
    elif depth < _DEPTH and hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, key), f"{name}.{key}", depth + 1)

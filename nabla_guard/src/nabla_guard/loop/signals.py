"""Norms and ranges of tensors: reduced on their device, read once per step.

``torch.aminmax`` and the L2 norm are the reductions that cost one pass over memory; ``isfinite``,
``std`` and the infinity norm are 30 to 50 times slower on a CPU. Half precision is accumulated in
float32, where a sum of squares of float16 values cannot overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

__all__ = [
    "can_read",
    "extremes",
    "is_ordinary",
    "is_plain",
    "is_small",
    "joint_norm",
    "norms",
    "nonzero_flags",
    "read",
    "read_one",
    "total_norm",
]

_HALF = frozenset({torch.float16, torch.bfloat16})
_FEW = 16
_SMALL = 1 << 16
_SAFE_SQUARES = (1e-30, 1e37)
_PLAIN = frozenset({Tensor, Parameter})


def norms(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the L2 norm of each tensor as a 0-dim tensor; ``None`` where there is none to take.

    Sparse tensors give the norm of their stored values, distributed ones that of their local part;
    integer, meta and other special tensors give ``None``.
    """
    if not tensors:
        return []
    try:
        return list(_batched(tensors))
    except (RuntimeError, TypeError, NotImplementedError):
        return [_single(tensor) for tensor in tensors]


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether one call of ``torch._foreach_norm`` reduces all: strided, of one device and dtype."""
    return (
        bool(tensors)
        and {type(tensor) for tensor in tensors} <= _PLAIN
        and {tensor.dtype for tensor in tensors} <= {torch.float32, torch.float64}
        and len({(tensor.device, tensor.dtype) for tensor in tensors}) == 1
        and all(tensor.layout is torch.strided and not tensor.is_meta for tensor in tensors)
    )


def is_small(tensors: Sequence[Tensor]) -> bool:
    """Whether plain ``tensors`` are so small that a call costs more than passing over them."""
    on_host = tensors[0].device.type == "cpu"
    return on_host and sum([tensor.numel() for tensor in tensors]) <= _SMALL


def joint_norm(tensors: list[Tensor]) -> float | None:
    """Return the norm of the concatenation of small plain tensors, with few calls.

    Returns:
        ``None`` when the sum of squares is not certain: not finite, or so small or large that
        squares may have left the range of the dtype; and when a graph would be made.
    """
    flat = torch._C._nn.flatten_dense_tensors(tensors)
    if flat.requires_grad:
        return None
    squares: float = torch.dot(flat, flat).item()
    low, high = _SAFE_SQUARES
    return math.sqrt(squares) if low < squares < high else None


def total_norm(values: Sequence[float]) -> float:
    """Return the norm of the concatenation of tensors with these norms."""
    return math.hypot(*values)


def extremes(tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return minimum and maximum as 0-dim tensors; NaN propagates. ``None`` when not applicable."""
    if not tensor.is_floating_point() or type(tensor) not in _PLAIN or not tensor.numel():
        return None
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    low, high = torch.aminmax(tensor.detach())
    return low, high


def is_ordinary(tensor: Tensor) -> bool:
    """Whether a tensor really holds values of its own: not fake, not meta, no wrapper."""
    return type(tensor) in _PLAIN and not tensor.is_meta


def can_read(tensor: Tensor) -> bool:
    """Whether values may be copied to the host now: not while a CUDA graph is being captured."""
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def read(scalars: Sequence[Tensor]) -> list[float]:
    """Copy 0-dim tensors to the host: one transfer per device, in float32 or wider."""
    if not scalars:
        return []
    devices = {scalar.device for scalar in scalars}
    if len(devices) == 1:
        return read_one(scalars)
    result = [0.0] * len(scalars)
    for device in devices:
        where = [index for index, scalar in enumerate(scalars) if scalar.device == device]
        for index, value in zip(where, read([scalars[index] for index in where]), strict=True):
            result[index] = value
    return result


def read_one(scalars: Sequence[Tensor]) -> list[float]:
    """:func:`read` for 0-dim tensors of one device."""
    if len(scalars) <= _FEW and scalars[0].device.type == "cpu":
        return [float(scalar) for scalar in scalars]  # stacking costs more than it saves
    values: list[float] = torch.stack(tuple(scalars)).tolist()
    return values


def nonzero_flags(tensors: Sequence[Tensor]) -> list[bool]:
    """Return for each tensor whether any element is not exactly zero. NaN counts as non-zero.

    The norm decides first; where it is zero, squares may have underflowed and the elements decide.
    """
    with torch.no_grad():
        found = norms(tensors)
        values = iter(read([norm for norm in found if norm is not None]))
        flags = [False if norm is None else next(values) != 0.0 for norm in found]
        return [flag or _any(tensor) for flag, tensor in zip(flags, tensors, strict=True)]


def _any(tensor: Tensor) -> bool:
    stored = _stored(tensor)
    return stored is not None and bool(torch.count_nonzero(stored) > 0)


def _batched(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    kinds = {type(tensor) for tensor in tensors}
    if not kinds <= _PLAIN or any(map(_has_no_norm, tensors)):
        raise TypeError("special tensors are reduced one by one")
    dtypes = {tensor.dtype for tensor in tensors}
    if not dtypes & _HALF:
        return tuple(torch._foreach_norm(list(tensors)))
    if torch.float64 in dtypes:
        raise TypeError("a common accumulator would narrow float64")
    return tuple(torch._foreach_norm(list(tensors), 2, dtype=torch.float32))


def _has_no_norm(tensor: Tensor) -> bool:
    return tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex())


def _single(tensor: Tensor) -> Tensor | None:
    stored = _stored(tensor)
    if stored is None:
        return None
    if stored.itemsize < 2:
        stored = stored.to(torch.float32)
    dtype = torch.float32 if stored.dtype in _HALF else None
    norm: Tensor = torch.linalg.vector_norm(stored, dtype=dtype)
    return norm


def _stored(tensor: Tensor) -> Tensor | None:
    """The values that are really stored, or ``None`` where no norm makes sense."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.detach()._values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.detach().values()
    if type(tensor) not in _PLAIN or tensor.is_meta or tensor.is_quantized:
        return None
    return tensor if tensor.is_floating_point() or tensor.is_complex() else None

"""The tensors in nested containers and plain objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor
from torch.nn import Module

__all__ = ["leaves"]

_DEPTH = 5
_MAX_PARTS = 256


def leaves(value: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors inside nested containers and plain objects, always in the same order."""
    if isinstance(value, Tensor):
        yield value
        return
    if depth > _DEPTH or value is None or isinstance(value, (int, float, str, bytes, Module)):
        return
    if isinstance(value, Mapping):
        parts: Iterator[object] = iter(value.values())
    elif isinstance(value, (tuple, list)):
        parts = iter(value[:_MAX_PARTS])
    elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, type):
        parts = iter(vars(value).values())
    elif hasattr(value, "__dataclass_fields__"):
        parts = (getattr(value, name, None) for name in value.__dataclass_fields__)
    else:
        return
    for part in parts:
        yield from leaves(part, depth + 1)

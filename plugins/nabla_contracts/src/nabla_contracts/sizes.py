"""Norms of named tensors, read from their devices at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["each_norm", "joint"]


def each_norm(named: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the L2 norm of each tensor that has one, with one read per device.

    Half precision is accumulated in float32; sparse tensors give the norm of their values.
    """
    import torch

    from nabla_guard.loop.signals import norms, read

    with torch.no_grad():
        found = norms([tensor.detach() for tensor in named.values()])
        known = [name for name, norm in zip(named, found, strict=True) if norm is not None]
        return dict(zip(known, read([norm for norm in found if norm is not None]), strict=True))


def joint(norms: Sequence[float]) -> float:
    """Return the norm of the concatenation of tensors with these norms."""
    from math import hypot

    return hypot(*norms)

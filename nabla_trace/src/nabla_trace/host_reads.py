"""Numbers that are read from a device together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["on_host"]


def on_host(scalars: Sequence[Tensor]) -> list[float]:
    """Return the values of some scalars, with one read per device and dtype."""
    if all(scalar.is_cpu for scalar in scalars):
        return [float(scalar) for scalar in scalars]
    places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, scalar in enumerate(scalars):
        places.setdefault((scalar.device, scalar.dtype), []).append(index)
    found = [0.0] * len(scalars)
    for indices in places.values():
        values = torch.stack([scalars[index] for index in indices]).tolist()
        for index, value in zip(indices, values, strict=True):
            found[index] = value
    return found

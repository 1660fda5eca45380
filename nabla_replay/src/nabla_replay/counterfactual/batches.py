"""A batch without some of its samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

import torch
from torch import Tensor

from nabla_core.errors import UsageError

__all__ = ["without_samples"]


def without_samples(batch: object, samples: Collection[int]) -> object:
    """Return a batch without the samples at some places; the batch itself stays as it is.

    The length of the batch is that of its first tensor. Every tensor and list of that length loses
    the same places; what has another length is passed on.

    Args:
        batch: a tensor, or mappings, tuples and lists of such.
        samples: places in the batch.

    Raises:
        UsageError: nothing in it has a length, or no sample would be left.
    """
    size = next(_lengths(batch), None)
    if size is None:
        raise UsageError(f"a batch of type {type(batch).__name__} has no samples to leave out")
    kept = [place for place in range(size) if place not in samples]
    if not kept or len(kept) == size:
        raise UsageError(f"samples {sorted(samples)} cannot be left out of a batch of {size}")
    return _take(batch, kept, size)


def _lengths(batch: object) -> Iterator[int]:
    if isinstance(batch, Tensor):
        if batch.ndim:
            yield len(batch)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _lengths(value)
    elif isinstance(batch, (tuple, list)):
        for value in batch:
            yield from _lengths(value)


def _take(batch: object, kept: list[int], size: int) -> object:
    if isinstance(batch, Tensor):
        if not batch.ndim or len(batch) != size:
            return batch
        return batch.index_select(0, torch.tensor(kept, device=batch.device))
    if isinstance(batch, Mapping):
        taken = {name: _take(value, kept, size) for name, value in batch.items()}
        return taken if type(batch) is dict else type(batch)(taken)  # type: ignore[call-arg]
    if isinstance(batch, (tuple, list)):
        return _sequence(batch, kept, size)
    return batch


def _sequence(batch: tuple[object, ...] | list[object], kept: list[int], size: int) -> object:
    if len(batch) == size and not any(isinstance(value, (Tensor, Mapping)) for value in batch):
        values = [batch[place] for place in kept]  # texts, names: one for each sample
    else:
        values = [_take(value, kept, size) for value in batch]
    make = getattr(type(batch), "_make", type(batch))  # of a named tuple
    return cast("object", make(values))

"""Fingerprints that are read from their device later, all at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .crc32 import crc32_of
from .fingerprinter import Algorithm
from .mlh64 import MASK, mlh64_host, mlh64_lazy
from .views import byte_view, dense_parts

__all__ = ["LazyHash", "combined", "lazy_hash", "read_hashes"]

LazyHash = int | Tensor
"""A fingerprint, or one number on a device that will be it."""


def lazy_hash(tensor: Tensor, algorithm: Algorithm) -> LazyHash:
    """Fingerprint a whole tensor; nothing is read from an accelerator under ``mlh64``."""
    if algorithm == "crc32":
        return crc32_of(tensor)
    parts = [byte_view(part) for part in dense_parts(tensor)]
    if not parts:
        return 0
    raw = parts[0] if len(parts) == 1 else torch.cat(parts)
    return mlh64_host(raw.numpy()) or 1 if raw.is_cpu else mlh64_lazy(raw)


def read_hashes(hashes: Sequence[LazyHash]) -> list[int]:
    """Read what is still on a device, with one transfer for each."""
    values = [value if isinstance(value, int) else 0 for value in hashes]
    waiting: dict[torch.device, list[int]] = {}
    for index, value in enumerate(hashes):
        if isinstance(value, Tensor):
            waiting.setdefault(value.device, []).append(index)
    for indices in waiting.values():
        stacked = torch.stack([torch.as_tensor(hashes[index]) for index in indices])
        for index, value in zip(indices, stacked.tolist(), strict=True):
            values[index] = (value & MASK) or 1
    return values


def combined(values: Iterable[int]) -> int:
    """Return one fingerprint for several in order."""
    result = 0
    for value in values:
        result = zlib.crc32(value.to_bytes(8, "little"), result)
    return result

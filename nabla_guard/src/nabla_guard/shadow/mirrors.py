"""Float64 mirrors of low-precision memory.

A mirror belongs to memory, not to a tensor: views of one memory share one mirror, so that a write
through any of them is seen by all, as in the program itself.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["Mirrors", "memory_of", "upcast"]

_HASH = 1e7
_PHASES = 997
_ALIGNMENT = 16
_PURGE_EVERY = 8
_LARGE_BYTES = 1 << 16  # a mirror of this size is not left behind even for a few ops


class _Held(NamedTuple):
    """One memory with its mirror.

    A weak reference lets the program free the memory and still keeps its identity from being used
    again.
    """

    storage: StorageWeakRef
    dtype: torch.dtype
    flat: Tensor


class Mirrors:
    """The float64 values of what one region of the program computed.

    Args:
        shift: relative size by which values that enter the region are moved; 0 for the exact ones.
    """

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift
        self._held: dict[int, _Held] = {}
        self._puts = 0

    def __len__(self) -> int:
        return len(self._held)

    def of(self, tensor: Tensor) -> Tensor | None:
        """Return the mirror of a tensor that the region computed, else ``None``."""
        key = memory_of(tensor)
        held = None if key is None else self._held.get(key)
        if held is None:
            return None
        if held.dtype is not tensor.dtype:
            self.forget(tensor)  # the bits are read as another type
            return None
        return held.flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def value(self, tensor: Tensor) -> Tensor:
        """Return the mirror, or the tensor's own value in float64 where it entered the region."""
        known = self.of(tensor)
        return upcast(tensor, self.shift) if known is None else known

    def writable(self, tensor: Tensor) -> Tensor:
        """Return the mirror of a tensor that is about to be written in place."""
        known = self.of(tensor)
        if known is not None:
            return known
        storage = tensor.untyped_storage()
        whole = tensor.detach().as_strided((storage.nbytes() // tensor.itemsize,), (1,), 0)
        flat = upcast(whole, self.shift)
        self._hold(storage, tensor.dtype, flat)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def put(self, tensor: Tensor, mirror: Tensor) -> None:
        """Note what the region computed for a tensor."""
        known = self.of(tensor)
        if known is not None:
            known.copy_(mirror)
            return
        storage = tensor.untyped_storage()
        same = mirror.stride() == tensor.stride() and not mirror.storage_offset()
        if same and not tensor.storage_offset():
            flat = mirror
        else:
            length = storage.nbytes() // tensor.itemsize
            flat = torch.zeros(length, dtype=torch.float64, device=tensor.device)
            flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(mirror)
        self._hold(storage, tensor.dtype, flat)

    def _hold(self, storage: torch.UntypedStorage, dtype: torch.dtype, flat: Tensor) -> None:
        self._puts += 1
        if flat.nbytes >= _LARGE_BYTES or not self._puts % _PURGE_EVERY:
            gone = [key for key, held in self._held.items() if held.storage.expired()]  # type: ignore[no-untyped-call]
            for key in gone:
                del self._held[key]
        self._held[storage._cdata] = _Held(StorageWeakRef(storage), dtype, flat)  # type: ignore[no-untyped-call]

    def forget(self, tensor: Tensor) -> None:
        """Take the present value of a tensor for exact from now on."""
        key = memory_of(tensor)
        if key is not None:
            self._held.pop(key, None)


def memory_of(tensor: Tensor) -> int | None:
    """Return the identity of a tensor's memory; ``None`` where it has none of its own."""
    if tensor.layout is not torch.strided:
        return None
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None


def upcast(tensor: Tensor, shift: float) -> Tensor:
    """Return the value in float64, moved by at most ``shift`` of itself.

    The direction is a function of the memory and of the value: every use of one number moves with
    it, equal numbers of two tensors do not.
    """
    exact = tensor.detach().double()
    if not shift:
        return exact
    phase = float((memory_of(tensor) or 0) // _ALIGNMENT % _PHASES)
    return exact * (1.0 + shift * torch.sin(exact * _HASH + phase))

"""Steps that are recorded in brief: where a budget leaves no room for more, most steps are.

A brief record holds the loss, the place in the data and the fingerprint of one small parameter, the
anchor: it tells the states after two steps apart, so that a program can be found again in its run.
"""

from __future__ import annotations

import ctypes
from zlib import crc32

from torch import Tensor

from ..fingerprints.fingerprinter import Fingerprinter
from ..fingerprints.table import Entry
from ..fingerprints.views import is_plain, raw_bytes
from ..store.entries import ANCHOR

__all__ = ["Anchor", "anchor_in"]

_MOST_BYTES = 4096


def anchor_in(name: str, entries: int) -> int | None:
    """Return the entry that a vector of a brief record is about; ``None`` if it is about none.

    Args:
        name: of the vector.
        entries: how many entries there are.
    """
    index = name.removeprefix(ANCHOR)
    if index == name or not index.isdecimal() or len(index) > len(str(entries)):
        return None
    return int(index) if int(index) < entries else None


class Anchor:
    """The smallest vector among the parameters that are trained, if it is small.

    Args:
        fingerprinter: hashes it.

    Attributes:
        name: of the vector in a record; empty if there is no such parameter.
    """

    def __init__(self, fingerprinter: Fingerprinter) -> None:
        sizes = {
            index: extent.size_bytes
            for index, (entry, extent) in enumerate(
                zip(fingerprinter.entries, fingerprinter.extents, strict=True)
            )
            if 0 < extent.size_bytes <= _MOST_BYTES and _is_trained_vector(entry)
        }
        self._fingerprinter = fingerprinter
        self._index = min(sizes, key=sizes.__getitem__, default=-1)
        self.name = "" if self._index < 0 else f"{ANCHOR}{self._index}"
        self._entry = fingerprinter.entries[self._index] if self.name else None
        self._size = sizes.get(self._index, 0)
        self._address = 0
        self._tensor: Tensor | None = None
        self._bytes: ctypes.Array[ctypes.c_char] | None = None

    def __call__(self) -> bytes:
        """Return its fingerprint."""
        entry = self._entry
        if entry is None:
            return b""
        tensor = entry.owner.get(entry.key)
        if tensor is not self._tensor or tensor is None or tensor.data_ptr() != self._address:
            return self._anew(tensor)
        if self._bytes is None:
            return self._fingerprinter.packed_entry(self._index)
        return (crc32(self._bytes) or 1).to_bytes(4, "little")

    def _anew(self, tensor: Tensor | None) -> bytes:
        """It lies elsewhere than at the last look: see whether its memory can be read in place."""
        self._tensor, self._bytes = tensor, None
        if tensor is not None:
            self._address = tensor.data_ptr()
            plain = tensor.is_cpu and is_plain(tensor) and tensor.is_contiguous()
            if plain and self._address and tensor.nbytes == self._size:
                self._bytes = raw_bytes(tensor, 0, self._size)
        return self._fingerprinter.packed_entry(self._index)


def _is_trained_vector(entry: Entry) -> bool:
    tensor = entry.tensor
    if entry.component != "parameter" or tensor is None:
        return False
    return tensor.ndim < 2 and tensor.requires_grad

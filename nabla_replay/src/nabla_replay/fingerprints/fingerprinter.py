"""Hashes one part of a program's state per step."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from .crc32 import crc32_of, crc32_part
from .layout import Extent, Piece, cut_evenly
from .mlh64 import MASK, mlh64_host, mlh64_lazy
from .table import Entry, tensors_of
from .views import byte_view, dense_parts, is_plain, window

__all__ = ["Algorithm", "Fingerprinter", "algorithm_for", "value_bytes"]

Algorithm = Literal["crc32", "mlh64"]
"""``crc32`` for tensors in host memory; ``mlh64`` gives the same value on every device."""

_ABSENT = 0
_strided = torch.strided


def algorithm_for(entries: tuple[Entry, ...]) -> Algorithm:
    """Return the quickest algorithm that can hash all of these tensors where they are."""
    host = all(tensor.device.type in ("cpu", "meta") for tensor in tensors_of(entries))
    return "crc32" if host else "mlh64"


def value_bytes(algorithm: Algorithm) -> int:
    """Return how many bytes one fingerprint takes."""
    return 4 if algorithm == "crc32" else 8


class Fingerprinter:
    """Hashes the tensors of a table, one part of them per step.

    Args:
        entries: the table.
        extents: how many bytes each entry has, as it was recorded.
        algorithm: how to hash.
        parts: in how many steps everything is looked at once.

    Attributes:
        elapsed_s: what the last call of :meth:`packed` took, by ``clock``.
        clock: seconds of this thread in host memory, of the wall where a device works along.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        extents: Sequence[Extent],
        algorithm: Algorithm,
        parts: int = 1,
    ) -> None:
        self.entries = tuple(entries)
        self.extents = tuple(extents)
        self.algorithm = algorithm
        self._letter = "I" if value_bytes(algorithm) == 4 else "Q"
        self.elapsed_s = 0.0
        # what other processes take from a shared processor is not what hashing costs
        self.clock = time.thread_time if algorithm == "crc32" else time.perf_counter
        self.turn(parts)

    def turn(self, parts: int) -> None:
        """Look at everything once in ``parts`` steps from now on."""
        self.parts = parts
        gradients = [entry.component == "gradient" for entry in self.entries]
        self.pieces = cut_evenly(self.extents, gradients, parts)
        self._plans = tuple(tuple(map(self._planned, pieces)) for pieces in self.pieces)

    def __call__(self, part: int) -> list[int]:
        """Hash one part; the values are in the order of its pieces, 0 for a tensor that is absent.

        Reads at most once from each device.
        """
        if self.algorithm == "crc32":
            return [self._crc32(*plan) for plan in self._plans[part % self.parts]]
        return self._mlh64(self.pieces[part % self.parts])

    def packed(self, part: int) -> bytes:
        """Hash one part into little-endian unsigned integers."""
        begun_s = self.clock()
        values = self(part)
        packed = struct.pack(f"<{len(values)}{self._letter}", *values)
        self.elapsed_s = self.clock() - begun_s
        return packed

    def packed_entry(self, index: int) -> bytes:
        """Hash one entry as a whole into a little-endian unsigned integer."""
        return self.packed_entries((index,))

    def packed_entries(self, indices: Sequence[int]) -> bytes:
        """Hash some entries as a whole; reads at most once from each device."""
        pieces = [Piece(index, 0, self.extents[index].size_bytes) for index in indices]
        if self.algorithm == "crc32":
            values = [self._crc32(*self._planned(piece)) for piece in pieces]
        else:
            values = self._mlh64(pieces)
        return struct.pack(f"<{len(values)}{self._letter}", *values)

    def _planned(
        self, piece: Piece
    ) -> tuple[Mapping[str, Tensor | None], str, bool, int, int, int]:
        entry, extent = self.entries[piece.entry], self.extents[piece.entry]
        size = -1 if extent.whole else extent.size_bytes
        return entry.owner, entry.key, entry.component == "gradient", size, piece.start, piece.end

    @staticmethod
    def _crc32(
        owner: Mapping[str, Tensor | None], key: str, grad: bool, size: int, start: int, end: int
    ) -> int:
        tensor = owner.get(key)
        if tensor is not None and grad:
            tensor = tensor.grad
        if tensor is None:
            return _ABSENT
        if (
            tensor.is_cpu
            and tensor.layout is _strided
            and tensor.nbytes == size
            and tensor.is_contiguous()
        ):
            address = tensor.data_ptr()
            if address and (not tensor.storage_offset() or not _is_gone(tensor)):
                return zlib.crc32(window(end - start).from_address(address + start)) or 1
        if _is_gone(tensor):
            return _ABSENT
        if size >= 0 and is_plain(tensor) and tensor.nbytes == size:
            return crc32_part(tensor, start, end)
        return crc32_of(tensor)

    def _mlh64(self, pieces: Sequence[Piece]) -> list[int]:
        values: list[int | None] = []
        waiting: dict[torch.device, list[tuple[int, Tensor]]] = {}
        for piece in pieces:
            tensor = self.entries[piece.entry].tensor
            if tensor is None or _is_gone(tensor):
                values.append(_ABSENT)
                continue
            raw = self._bytes(tensor, piece)
            if raw.is_cpu:
                values.append(mlh64_host(raw.numpy()) or 1)
            else:
                waiting.setdefault(raw.device, []).append((len(values), mlh64_lazy(raw)))
                values.append(None)
        for pairs in waiting.values():
            read = torch.stack([value for _, value in pairs]).tolist()
            for (index, _), value in zip(pairs, read, strict=True):
                values[index] = (value & MASK) or 1
        return [value for value in values if value is not None]

    def _bytes(self, tensor: Tensor, piece: Piece) -> Tensor:
        extent = self.extents[piece.entry]
        if not extent.whole and is_plain(tensor) and tensor.nbytes == extent.size_bytes:
            return byte_view(tensor)[piece.start : piece.end]
        parts = [byte_view(part) for part in dense_parts(tensor)]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def _is_gone(tensor: Tensor) -> bool:
    """Whether there is no memory behind a tensor: not yet (lazy), or no longer (sharding)."""
    if is_lazy(tensor):
        return True
    if tensor.layout is not _strided or not is_plain(tensor):
        return False  # its parts say so themselves
    if not tensor.storage_offset() and tensor.data_ptr():
        return False
    reach = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return tensor.numel() > 0 and tensor.untyped_storage().nbytes() < reach

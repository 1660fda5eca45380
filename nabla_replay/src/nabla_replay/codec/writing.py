"""Writing a state file: complete and on disk under its name, or not there at all."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from nabla_core.artifacts.opening import open_folder
from nabla_core.artifacts.strict_json import JsonObject

from .container import STATE_SCHEMA, TensorSlot, frame_header
from .dtypes import ITEM_BYTES, stored_name
from .encoded import EncodedState
from .encoding import encode
from .octets import tensor_octets

__all__ = ["StoredFile", "save_state", "write_state"]

_PIECE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """Size and checksums of a whole file."""

    size_bytes: int
    crc32: int
    sha256: str


def save_state(path: Path, state: object, about: JsonObject | None = None) -> StoredFile:
    """Write a state file.

    Args:
        path: file to write; an older one is replaced at once, when the new one is on disk.
        state: nested dicts, lists and tuples of tensors, arrays and scalars.
        about: further metadata, e.g. ``{"step": 100}``.

    Raises:
        UnsupportedStateError: something in the state has no safe form.
        StateFormatError: the state needs a header beyond the limit.
        OSError: the file cannot be written.
    """
    folder = open_folder(path.parent)
    try:
        temporary = f".{path.name}.{os.getpid()}.tmp"
        return write_state(folder, (temporary, path.name), encode(state), about or {})
    finally:
        os.close(folder)


def write_state(
    folder: int, names: tuple[str, str], encoded: EncodedState, about: JsonObject
) -> StoredFile:
    """Write a state file in an open folder: write, sync, rename, sync the folder.

    Args:
        folder: descriptor of the folder.
        names: of the unfinished file, and of the finished one.
        encoded: what to write.
        about: further metadata.

    Raises:
        StateFormatError: the state needs a header beyond the limit.
        OSError: the file cannot be written; nothing is left of it.
    """
    temporary, final = names
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        try:
            stored = _write(descriptor, _pieces(encoded, about))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)
    return stored


def _pieces(encoded: EncodedState, about: JsonObject) -> Iterable[bytes | memoryview]:
    """Yield the file from its first byte to its last."""
    # widest elements first: every tensor is then aligned, as other readers of the format expect
    names = sorted(encoded.tensors, key=lambda name: -encoded.tensors[name].element_size())
    slots, at = [], 0
    for name in names:
        slot = _slot(name, encoded.tensors[name], at)
        slots.append(slot)
        at = slot.end
    yield frame_header(tuple(slots), {**about, "schema": STATE_SCHEMA, "tree": encoded.tree})
    for name in names:
        octets = tensor_octets(encoded.tensors[name])
        for begin in range(0, len(octets), _PIECE_BYTES):
            yield octets[begin : begin + _PIECE_BYTES]


def _slot(name: str, tensor: torch.Tensor, begin: int) -> TensorSlot:
    end = begin + tensor.numel() * tensor.element_size()
    dtype = stored_name(tensor.dtype)
    if dtype is None:  # the format lacks it: raw bytes, and the tree says what they are
        return TensorSlot(name=name, dtype="U8", shape=(end - begin,), begin=begin, end=end)
    if ITEM_BYTES[dtype] != tensor.element_size():
        raise ValueError(f"{dtype} has {ITEM_BYTES[dtype]} bytes, not {tensor.element_size()}")
    return TensorSlot(name=name, dtype=dtype, shape=tuple(tensor.shape), begin=begin, end=end)


def _write(descriptor: int, pieces: Iterable[bytes | memoryview]) -> StoredFile:
    crc, digest, size = 0, hashlib.sha256(), 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
        digest.update(piece)
        size += len(piece)
        left = memoryview(piece)
        while left:
            left = left[os.write(descriptor, left) :]
    return StoredFile(size_bytes=size, crc32=crc, sha256=digest.hexdigest())

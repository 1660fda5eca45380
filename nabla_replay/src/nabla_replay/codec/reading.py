"""Reading a state file that a stranger may have made."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch

from nabla_core.artifacts.opening import open_regular
from nabla_core.artifacts.strict_json import JsonObject
from nabla_core.errors import InputError

from ..errors import CheckpointError, StateFormatError
from .container import LENGTH_BYTES, Frame, header_length, parse_frame
from .decoding import decode
from .encoded import EncodedState
from .octets import new_tensor, tensor_octets

__all__ = ["LoadedState", "Promise", "load_state", "read_state"]

_MAX_FILE_BYTES = 1 << 44
_PIECE_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a log says about a file. A file that differs is not used."""

    size_bytes: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """A state, and what its file says about it."""

    state: object
    about: JsonObject


def load_state(path: Path) -> object:
    """Return the state in a file written by :func:`nabla_replay.codec.writing.save_state`.

    Nothing is executed, and nothing outside the file is opened.

    Raises:
        UnsafePathError: it is a link, a pipe or a device.
        StateFormatError: it breaks the format.
        InputError: it is missing or cannot be read.
    """
    descriptor = open_regular(path, max_bytes=_MAX_FILE_BYTES)
    try:
        return read_state(descriptor, str(path)).state
    finally:
        os.close(descriptor)


def read_state(descriptor: int, what: str, promise: Promise | None = None) -> LoadedState:
    """Read an open state file from its beginning.

    Args:
        descriptor: the open regular file.
        what: its name in errors.
        promise: what the file must be.

    Raises:
        CheckpointError: it is not what was promised.
        StateFormatError: it breaks the format.
        InputError: it cannot be read.
    """
    try:
        return _read(descriptor, promise)
    except CheckpointError as error:
        raise type(error)(f"{what}: {error}") from error
    except OSError as error:
        raise InputError(f"{what}: cannot be read: {error.strerror or error}") from error


def _read(descriptor: int, promise: Promise | None) -> LoadedState:
    size = os.fstat(descriptor).st_size
    if promise is not None and size != promise.size_bytes:
        raise CheckpointError(f"has {size} bytes, its record says {promise.size_bytes}")
    prefix = _read_bytes(descriptor, min(size, LENGTH_BYTES))
    header = _read_bytes(descriptor, header_length(prefix, size))
    frame = parse_frame(header, size - LENGTH_BYTES - len(header))
    if not frame.is_state:
        schema = str(frame.metadata.get("schema"))[:60]
        raise StateFormatError(f"is a safetensors file, but no state of nabla (schema {schema})")
    tensors, crc = _tensors(descriptor, frame, zlib.crc32(header, zlib.crc32(prefix)))
    if promise is not None and crc != promise.crc32:
        raise CheckpointError(
            f"has checksum {crc:08x}, its record says {promise.crc32:08x}: a bit changed, or it "
            f"is another file (it says it holds step {frame.metadata.get('step')})"
        )
    encoded = EncodedState(tree=frame.metadata.get("tree"), tensors=tensors)
    about = {key: item for key, item in frame.metadata.items() if key != "tree"}
    return LoadedState(state=decode(encoded), about=about)


def _tensors(descriptor: int, frame: Frame, crc: int) -> tuple[dict[str, torch.Tensor], int]:
    """Return the tensors by name, and the checksum of the whole file."""
    tensors = {}
    for slot in frame.slots:
        tensors[slot.name] = new_tensor(slot)
        octets = tensor_octets(tensors[slot.name])
        for begin in range(0, len(octets), _PIECE_BYTES):
            piece = octets[begin : begin + _PIECE_BYTES]
            _fill(descriptor, piece)
            crc = zlib.crc32(piece, crc)
    return tensors, crc


def _read_bytes(descriptor: int, count: int) -> bytes:
    octets = bytearray(count)
    _fill(descriptor, memoryview(octets))
    return bytes(octets)


def _fill(descriptor: int, target: memoryview) -> None:
    while target:
        count = os.readv(descriptor, [target])
        if count == 0:
            raise StateFormatError("became shorter while it was read")
        target = target[count:]

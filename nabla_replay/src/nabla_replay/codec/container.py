"""The frame of a state file, which is a safetensors file: 8 bytes, a JSON header, raw tensors.

Read as if a stranger had made it: every number of the header is checked against the size of the
file before anything of that size is allocated. Torch-free, so that a file can be inspected without.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from nabla_core.artifacts.strict_json import (
    JsonObject,
    JsonValue,
    StrictJsonError,
    dump_json,
    parse_object,
)

from ..errors import StateFormatError
from .dtypes import ITEM_BYTES

__all__ = [
    "LENGTH_BYTES",
    "MAX_HEADER_BYTES",
    "STATE_SCHEMA",
    "Frame",
    "TensorSlot",
    "frame_header",
    "header_length",
    "parse_frame",
    "tensor_slot",
]

STATE_SCHEMA = "nabla.state/1"
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 32 * 1024 * 1024
"""Of the JSON header: a tenth of a million tensors fit; what it can make of memory is bounded."""

_MAX_DIMENSIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlot:
    """One tensor of a file: where its bytes are, counted from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A header whose slots tile the data exactly.

    Attributes:
        slots: in the order of their bytes.
        metadata: what the writer says about the file; empty in files of others.
    """

    slots: tuple[TensorSlot, ...]
    metadata: JsonObject

    @property
    def is_state(self) -> bool:
        """Whether nabla wrote it."""
        return self.metadata.get("schema") == STATE_SCHEMA


def frame_header(slots: tuple[TensorSlot, ...], metadata: JsonObject) -> bytes:
    """Return the length and the header, padded so that the data begins at a multiple of 8.

    Raises:
        StateFormatError: the header is too long to be read back.
    """
    header: JsonObject = {
        slot.name: {
            "dtype": slot.dtype,
            "shape": list(slot.shape),
            "data_offsets": [slot.begin, slot.end],
        }
        for slot in slots
    }
    header["__metadata__"] = {"nabla": dump_json(metadata).decode("ascii")}
    text = dump_json(header)
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise StateFormatError(
            f"the state needs a header of {len(text)} bytes, at most {MAX_HEADER_BYTES} are "
            "stored: keep long lists of numbers as tensors"
        )
    return struct.pack("<Q", len(text)) + text


def header_length(prefix: bytes, file_bytes: int) -> int:
    """Return the length of the header from the first 8 bytes of a file.

    Raises:
        StateFormatError: the file is too short for it, or it is above the limit.
    """
    if len(prefix) != LENGTH_BYTES:
        raise StateFormatError(f"has {file_bytes} bytes, too few for a state file")
    length: int = struct.unpack("<Q", prefix)[0]
    if length > file_bytes - LENGTH_BYTES:
        raise StateFormatError(
            f"says that its header has {length} bytes, but the file has {file_bytes}"
        )
    if length > MAX_HEADER_BYTES:
        raise StateFormatError(f"has a header of {length} bytes, at most {MAX_HEADER_BYTES}")
    return length


def parse_frame(header: bytes, data_bytes: int) -> Frame:
    """Check a header against the size of the data that follows it.

    Raises:
        StateFormatError: it is no strict JSON, or the slots do not tile the data.
    """
    try:
        found = parse_object(header, "header")
        metadata = _metadata(found.pop("__metadata__", {}))
    except StrictJsonError as error:
        raise StateFormatError(str(error)) from error
    slots = sorted(_slots(found), key=lambda slot: (slot.begin, slot.end))
    at = 0
    for slot in slots:
        if slot.begin != at:
            what = "overlaps another" if slot.begin < at else "leaves a gap before it"
            raise StateFormatError(f"tensor {slot.name[:80]!r} {what}")
        at = slot.end
    if at != data_bytes:
        raise StateFormatError(f"the tensors need {at} bytes, the file holds {data_bytes}")
    return Frame(slots=tuple(slots), metadata=metadata)


def _metadata(found: JsonValue) -> JsonObject:
    if not isinstance(found, dict):
        raise StateFormatError("the metadata is no object")
    text = found.get("nabla")
    if text is None:
        return {}
    if not isinstance(text, str):
        raise StateFormatError("the metadata of nabla is no string")
    return parse_object(text, "metadata")


def _slots(found: JsonObject) -> Iterator[TensorSlot]:
    for name, entry in found.items():
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end], **rest}:
                if rest:
                    raise StateFormatError(f"the entry of tensor {name[:80]!r} says too much")
                yield tensor_slot(name, dtype, shape, (begin, end))
            case _:
                raise StateFormatError(f"the entry of tensor {name[:80]!r} is malformed")


def tensor_slot(
    name: str, dtype: str, shape: Sequence[JsonValue], offsets: tuple[JsonValue, JsonValue]
) -> TensorSlot:
    """Check that dtype, shape and offsets of one tensor fit each other.

    Raises:
        StateFormatError: they do not.
    """
    numbers = [number for number in (*shape, *offsets) if type(number) is int and number >= 0]
    if len(numbers) != len(shape) + 2 or len(shape) > _MAX_DIMENSIONS:
        raise StateFormatError(f"the shape or place of tensor {name[:80]!r} is malformed")
    *sizes, begin, end = numbers
    item_bytes = ITEM_BYTES.get(dtype)
    if item_bytes is None:
        raise StateFormatError(f"tensor {name[:80]!r} has the unknown dtype {dtype[:20]!r}")
    if prod(filter(None, sizes)) >= 1 << 62 or end - begin != prod(sizes) * item_bytes:
        raise StateFormatError(f"the shape of tensor {name[:80]!r} does not fit its bytes")
    return TensorSlot(name=name, dtype=dtype, shape=tuple(sizes), begin=begin, end=end)

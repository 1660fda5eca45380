"""The wire format of protocol buffers, as far as scalars of an event file need it.

Source: the encoding as its documentation describes it (varints, 64-bit, length-delimited, 32-bit).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Field", "WireError", "fields_of"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are no message."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message; ``value`` holds the varint, or the raw bytes."""

    number: int
    value: int | bytes

    @property
    def content(self) -> bytes:
        """The raw bytes.

        Raises:
            WireError: the field is a varint.
        """
        if isinstance(self.value, int):
            raise WireError(f"field {self.number} is a number")
        return self.value

    @property
    def number_value(self) -> float:
        """The field as a float or double, or as a varint.

        Raises:
            WireError: its length is that of no number.
        """
        if isinstance(self.value, int):
            return float(self.value)
        if len(self.value) == 4:
            return float(struct.unpack("<f", self.value)[0])
        if len(self.value) == 8:
            return float(struct.unpack("<d", self.value)[0])
        raise WireError(f"field {self.number} has {len(self.value)} bytes")


def fields_of(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order.

    Raises:
        WireError: the bytes are no message.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield Field(number, value)
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if length < 0 or place + length > len(message):
            raise WireError(f"a field of kind {kind} does not fit")
        yield Field(number, message[place : place + length])
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT_BYTES):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, place
    raise WireError("a number does not end")

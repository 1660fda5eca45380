"""Framed records of a TensorBoard event file, with their checksums.

A record is: length (8 bytes, little endian), masked CRC-32C of the length, payload, masked CRC-32C
of the payload. Source: the TFRecord format as TensorFlow documents it; CRC-32C after Castagnoli.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nabla_core.errors import InputError

from .lines import open_bytes
from .notes import Notes

__all__ = ["crc32c", "masked_crc", "read_records"]

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MAX_BYTES = 64 * 1024  # scalars need a hundred bytes; images and graphs are skipped


def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE = _table()


def crc32c(content: bytes) -> int:
    """Return the CRC-32C of ``content``."""
    value = 0xFFFFFFFF
    table = _TABLE
    for byte in content:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def masked_crc(content: bytes) -> int:
    """Return the checksum as the format stores it: rotated by 15 bits plus a constant."""
    value = crc32c(content)
    return (((value >> 15) | (value << 17)) + _MASK) & 0xFFFFFFFF


def read_records(path: Path, notes: Notes) -> Iterator[bytes]:
    """Yield the payloads up to 64 KiB; larger ones are skipped unread.

    Reading ends with a remark where the file is cut or damaged: what follows cannot be trusted.

    Raises:
        InputError: not even the first record is whole.
    """
    with open_bytes(path) as stream:
        first = True
        while True:
            header = stream.read(_HEADER.size)
            if not header:
                return
            payload = _payload(stream, header)
            if payload is None:
                if first:
                    raise InputError(f"{path}: is no event file: the first record is damaged")
                notes.add("the file ends with a record that is cut or damaged")
                return
            first = False
            yield payload


def _payload(stream: IO[bytes], header: bytes) -> bytes | None:
    """Return the payload, empty for a skipped one, ``None`` for a damaged one."""
    if len(header) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack(header)
    if masked_crc(header[:8]) != checksum:
        return None
    if length > _MAX_BYTES:
        return b"" if _skip(stream, length + _CHECKSUM.size) else None
    payload, tail = stream.read(length), stream.read(_CHECKSUM.size)
    if len(payload) < length or len(tail) < _CHECKSUM.size:
        return None
    return payload if masked_crc(payload) == _CHECKSUM.unpack(tail)[0] else None


def _skip(stream: IO[bytes], size: int) -> bool:
    while size > 0:
        taken = len(stream.read(min(size, 1024 * 1024)))
        if not taken:
            return False
        size -= taken
    return True

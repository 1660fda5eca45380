"""The lines of a log, one at a time, in bounded memory, whatever the file holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from .lines import MAX_LINE_BYTES

__all__ = ["RawLine", "read_lines"]

_BLOCK_BYTES = 1 << 20
_MAX_FRAMED_BYTES = MAX_LINE_BYTES + 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLine:
    """One line as it stands in the file.

    Attributes:
        number: 1-based.
        text: without the newline; None for a line that is longer than any record.
        is_complete: whether a newline ends it; only the last line can lack it.
    """

    number: int
    text: bytes | None
    is_complete: bool = True


def read_lines(descriptor: int) -> Iterator[RawLine]:
    """Yield the lines of an open file from its beginning; its position is not used.

    Raises:
        OSError: reading fails.
    """
    number, at, rest, is_long = 1, 0, b"", False
    while block := os.pread(descriptor, _BLOCK_BYTES, at):
        at += len(block)
        *whole, rest_of_block = block.split(b"\n")
        for text in whole:
            line = None if is_long or len(rest) + len(text) > _MAX_FRAMED_BYTES else rest + text
            yield RawLine(number=number, text=line)
            number, rest, is_long = number + 1, b"", False
        if is_long or len(rest) + len(rest_of_block) > _MAX_FRAMED_BYTES:
            is_long, rest = True, b""  # passed over up to its newline
        else:
            rest += rest_of_block
    if rest or is_long:
        yield RawLine(number=number, text=None if is_long else rest, is_complete=False)

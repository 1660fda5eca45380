"""The end of a log that a killed process left: where to go on, and with which number."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import RecordError
from .lines import MAX_LINE_BYTES, parse_line

__all__ = ["LogTail", "read_tail"]

_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """Where the next record goes.

    Attributes:
        end: bytes up to and including the last newline; what follows is torn.
        torn_bytes: bytes after ``end``.
        next_sequence: number of the next record.
    """

    end: int
    torn_bytes: int
    next_sequence: int


def read_tail(descriptor: int) -> LogTail:
    """Return the end of an open log.

    A complete line that is damaged stays: it may have been acknowledged before a bit flipped, and
    it is reported rather than removed. Only what has no newline is torn.

    Args:
        descriptor: open for reading; its position is not used.
    """
    size = os.fstat(descriptor).st_size
    end = _last_newline(descriptor, size)
    bad_lines, at = 0, end
    while at > 0:
        begin = _last_newline(descriptor, at - 1)
        if at - begin > MAX_LINE_BYTES:
            break  # no record is that long: its number cannot be known
        try:
            line = parse_line(os.pread(descriptor, at - begin, begin)[:-1])
        except RecordError:
            bad_lines, at = bad_lines + 1, begin
            continue
        return LogTail(end=end, torn_bytes=size - end, next_sequence=line.sequence + 1 + bad_lines)
    return LogTail(end=end, torn_bytes=size - end, next_sequence=bad_lines)


def _last_newline(descriptor: int, end: int) -> int:
    """Return the offset just behind the last newline before ``end``; 0 if there is none."""
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        at = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0

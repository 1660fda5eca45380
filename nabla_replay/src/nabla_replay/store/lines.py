r"""One record, one line: ``{"c":"<crc32 of what follows d>","d":{"n":7,"k":"step",...}}\n``.

The checksum finds a changed bit, the sequence number ``n`` a missing, repeated or moved line.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from nabla_core.artifacts.strict_json import JsonObject, StrictJsonError, dump_json, parse_object

from ..errors import RecordError
from .brief_text import BriefEntry, brief_text
from .entries import Entry, StepEntry, entry_from_body
from .fields import take_count, take_text
from .step_text import step_text

__all__ = ["MAX_LINE_BYTES", "Line", "check_line", "encode_line", "parse_line"]

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longer lines are neither written nor read: memory stays bounded."""

_HEAD, _MIDDLE = b'{"c":"', b'","d":'
_BODY = len(_HEAD) + 8 + len(_MIDDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line whose checksum is right."""

    sequence: int
    kind: str
    entry: Entry


def encode_line(sequence: int, entry: Entry | BriefEntry) -> bytes:
    """Return the line of a record, with its newline.

    Raises:
        RecordError: it is too long, or holds a number that JSON lacks.
    """
    try:
        body = (
            brief_text(sequence, entry) if isinstance(entry, BriefEntry) else _body(sequence, entry)
        )
    except (TypeError, ValueError) as error:
        raise RecordError(f"a {entry.kind} record is no JSON: {error}") from error
    if len(body) > MAX_LINE_BYTES:
        raise RecordError(
            f"a {entry.kind} record has {len(body)} bytes, at most {MAX_LINE_BYTES} are stored"
        )
    return b'{"c":"%08x","d":%b}\n' % (zlib.crc32(body), body)


def _body(sequence: int, entry: Entry) -> bytes:
    if isinstance(entry, StepEntry):
        return step_text(sequence, entry)
    record: JsonObject = {"n": sequence, "k": entry.kind, **entry.to_body()}
    return dump_json(record)


def parse_line(line: bytes) -> Line:
    """Read one line without its newline.

    Raises:
        RecordError: the frame, the checksum, the JSON or a part of the record is wrong.
    """
    body = check_line(line)
    try:
        record = parse_object(body, "record")
    except StrictJsonError as error:
        raise RecordError(str(error)) from error
    sequence, kind = take_count(record, "n"), take_text(record, "k")
    del record["n"], record["k"]
    return Line(sequence=sequence, kind=kind, entry=entry_from_body(kind, record))


def check_line(line: bytes) -> bytes:
    """Return the JSON inside a line whose frame and checksum are right.

    Raises:
        RecordError: they are not.
    """
    framed = line.startswith(_HEAD) and line.endswith(b"}}") and line[14:_BODY] == _MIDDLE
    if not framed:
        raise RecordError("is not framed as a record")
    body = line[_BODY:-1]
    stated, measured = line[len(_HEAD) : 14], b"%08x" % zlib.crc32(body)
    if stated != measured:
        raise RecordError(f"has checksum {measured.decode()}, but says {stated[:8]!r}")
    return body

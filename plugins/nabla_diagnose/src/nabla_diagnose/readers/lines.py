"""Lines of a text file that may be huge, foreign, damaged, or still being written."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, cast

from nabla_core.errors import InputError

__all__ = ["head_of", "is_binary", "open_bytes", "read_lines", "read_texts", "text_encoding"]

MAX_LINE_CHARS = 16 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_HEAD_BYTES = 64 * 1024
_SNAPSHOT_BYTES = 8 * 1024 * 1024
_ATTEMPTS = 3
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = bytes(code for code in range(32) if code not in (7, 8, 9, 10, 11, 12, 13, 27))


def open_bytes(path: Path) -> IO[bytes]:
    """Open a regular file, unpacking ``.gz``; a small one is read at once.

    A small file that changes while it is read is read again, so that a tracker which rewrites it
    is never seen half done.

    Raises:
        InputError: it is missing, no regular file, or cannot be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: is not a regular file")
        if status.st_size == 0:
            raise InputError(f"{path}: is empty")
        raw = _snapshot(path) if status.st_size <= _SNAPSHOT_BYTES else path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if raw.read(2) == b"\x1f\x8b":
        raw.seek(0)
        return cast("IO[bytes]", _Unpacked(fileobj=raw, path=path))
    raw.seek(0)
    return raw


def head_of(path: Path, size: int = _HEAD_BYTES) -> bytes:
    """Return the first bytes of a file, unpacked.

    Raises:
        InputError: it cannot be read.
    """
    with open_bytes(path) as stream:
        return stream.read(size)


def is_binary(head: bytes) -> bool:
    """Whether this is no text in any usual encoding."""
    if any(head.startswith(mark) for mark, _ in _MARKS) or _looks_utf16(head):
        return False
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return b"\0" in head or controls > 0.02 * len(head)


def text_encoding(head: bytes) -> str:
    """Return the encoding of a text: by its mark, UTF-8 when it fits, else Latin-1."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if _looks_utf16(head):
        return "utf-16-le" if head[1:2] == b"\0" else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def read_lines(path: Path) -> Iterator[str]:
    """Return the lines without their ends, in bounded memory.

    A last line without an end is left out if the file grew while it was read: it may be half a
    line. Bytes that do not fit the encoding become replacement characters.

    Raises:
        InputError: the file cannot be read, is binary, or has a line above 16 million characters.
    """
    return chain.from_iterable(text.split("\n")[:-1] for text in read_texts(path))


def read_texts(path: Path) -> Iterator[str]:
    """Yield the text in pieces of whole lines, each line ended by a line feed.

    As :func:`read_lines`, for those that look at many lines at once.

    Raises:
        InputError: as :func:`read_lines`.
    """
    size_before = path.stat().st_size if path.exists() else 0
    with open_bytes(path) as stream:
        yield from _split(path, stream, size_before)


def _split(path: Path, stream: IO[bytes], size_before: int) -> Iterator[str]:
    chunk = stream.read(_HEAD_BYTES)
    if is_binary(chunk):
        raise InputError(f"{path}: is binary, not a log in text")
    decoder = codecs.getincrementaldecoder(text_encoding(chunk))(errors="replace")
    end_mark = "\r" if b"\n" not in chunk and b"\r" in chunk else "\n"
    begun: list[str] = []  # pieces of a line whose end was not seen yet
    length = 0
    while chunk:
        text = decoder.decode(chunk)
        end = text.rfind(end_mark)
        if end >= 0:
            yield _unified("".join([*begun, text[: end + 1]]))
            begun, length = [], 0
        begun.append(text[end + 1 :])
        length += len(begun[-1])
        if length > MAX_LINE_CHARS:
            raise InputError(f"{path}: has a line above {MAX_LINE_CHARS} characters; is it a log?")
        chunk = stream.read(_CHUNK_BYTES)
    rest = _unified("".join([*begun, decoder.decode(b"", final=True)])).rstrip("\n")
    if rest and path.stat().st_size == size_before:
        yield f"{rest}\n"


def _unified(text: str) -> str:
    if "\r" in text:  # files that went through two systems have "\r\r\n"
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    return text


class _Unpacked(gzip.GzipFile):
    """A packed file whose damage is a typed error."""

    def __init__(self, fileobj: IO[bytes], path: Path) -> None:
        super().__init__(fileobj=fileobj)
        self._path = path

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self._path}: cannot be unpacked: {error}") from error


def _snapshot(path: Path) -> IO[bytes]:
    content = b""
    for _ in range(_ATTEMPTS):
        with path.open("rb") as stream:
            before = os.fstat(stream.fileno())
            content = stream.read(_SNAPSHOT_BYTES * 2)
            after = os.fstat(stream.fileno())
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            break
    return io.BytesIO(content)


def _looks_utf16(head: bytes) -> bool:
    sample = head[:1000]
    if len(sample) < 8 or sample.count(0) < 0.3 * len(sample):
        return False
    return sample[::2].count(0) == 0 or sample[1::2].count(0) == 0

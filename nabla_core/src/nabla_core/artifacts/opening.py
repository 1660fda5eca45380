"""Opening files that a stranger may have made: no links, no pipes, no devices, no escapes.

Everything is opened relative to a folder that is already open, so that a path cannot change its
meaning between the check and the use.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import InputError

__all__ = [
    "UnsafePathError",
    "is_plain_name",
    "open_appending",
    "open_folder",
    "open_regular",
    "read_all",
    "read_regular",
]

_CLOSED = os.O_CLOEXEC | os.O_NOFOLLOW
_MAX_NAME = 255


class UnsafePathError(InputError):
    """A path is a link, a pipe or a device, or leads out of its folder."""


def is_plain_name(name: str) -> bool:
    """Return whether ``name`` names something directly inside a folder, and is printable."""
    return (
        0 < len(name) <= _MAX_NAME
        and name not in (".", "..")
        and not set(name) & {"/", "\\"}
        and name.isprintable()
    )


def open_folder(path: str | Path, *, inside: int | None = None) -> int:
    """Open a folder that is no link itself; its parents may be links.

    Args:
        path: the folder; a plain name if ``inside`` is given.
        inside: descriptor of the folder that holds it.

    Returns:
        A descriptor that the caller closes.

    Raises:
        UnsafePathError: it is a link.
        InputError: it is missing, no folder, or cannot be opened.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | _CLOSED, dir_fd=inside)
    except OSError as error:
        raise _refusal(path, error, inside, "folder") from error


def open_regular(name: str | Path, *, inside: int | None = None, max_bytes: int) -> int:
    """Open a regular file for reading. A pipe neither blocks nor is read.

    Args:
        name: path of the file; a plain name if ``inside`` is given.
        inside: descriptor of the folder that holds it.
        max_bytes: files above this size are refused.

    Returns:
        A descriptor that the caller closes.

    Raises:
        UnsafePathError: it is a link, a pipe, a device or a socket, or not a plain name.
        InputError: it is missing, too large, or cannot be opened.
    """
    if inside is not None and not is_plain_name(str(name)):
        raise UnsafePathError(f"{str(name)!r}: is no plain file name; nothing outside is opened")
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _CLOSED, dir_fd=inside)
    except OSError as error:
        raise _refusal(name, error, inside, "file") from error
    try:
        _check_regular(name, os.fstat(descriptor), max_bytes)
    except InputError:
        os.close(descriptor)
        raise
    return descriptor


def open_appending(name: str, *, inside: int) -> int:
    """Open a regular file for reading and appending; it is made, private, if it is not there.

    Args:
        name: plain name of the file.
        inside: descriptor of the folder that holds it.

    Returns:
        A descriptor that the caller closes.

    Raises:
        UnsafePathError: it is a link, a pipe, a device or a socket.
        InputError: it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | _CLOSED
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=inside)
    except OSError as error:
        raise _refusal(name, error, inside, "file") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnsafePathError(f"{name}: is {_kind(status.st_mode)}, not a regular file")
    return descriptor


def read_regular(name: str | Path, *, inside: int | None = None, max_bytes: int) -> bytes:
    """Return the content of a regular file of bounded size.

    Raises:
        UnsafePathError: as :func:`open_regular`.
        InputError: as :func:`open_regular`, or reading fails.
    """
    descriptor = open_regular(name, inside=inside, max_bytes=max_bytes)
    try:
        return read_all(descriptor, max_bytes)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error
    finally:
        os.close(descriptor)


def read_all(descriptor: int, max_bytes: int) -> bytes:
    """Return what a descriptor holds from its position on, at most ``max_bytes``.

    Raises:
        InputError: there is more: the file has grown since it was opened.
        OSError: reading fails.
    """
    pieces: list[bytes] = []
    left = max_bytes + 1
    while left > 0:
        piece = os.read(descriptor, min(left, 1 << 20))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    raise InputError(f"file grew past {max_bytes} bytes while it was read")


def _check_regular(name: str | Path, status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePathError(f"{name}: is {_kind(status.st_mode)}, not a regular file")
    if status.st_size > max_bytes:
        raise InputError(f"{name}: has {status.st_size} bytes, at most {max_bytes} are read")


def _refusal(name: str | Path, error: OSError, inside: int | None, wanted: str) -> InputError:
    """Say what was found instead of what was wanted; looking at it opens nothing."""
    try:
        mode = os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return InputError(f"{name}: no such {wanted}")
    except OSError:
        return InputError(f"{name}: cannot be opened: {error.strerror or error}")
    right = stat.S_ISDIR(mode) if wanted == "folder" else stat.S_ISREG(mode)
    if right:
        return InputError(f"{name}: cannot be opened: {error.strerror or error}")
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return InputError(f"{name}: is {_kind(mode)}, not a {wanted}")
    return UnsafePathError(f"{name}: is {_kind(mode)}, not a {wanted}; it is not followed")


def _kind(mode: int) -> str:
    for test, words in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a regular file"),
    ):
        if test(mode):
            return words
    return "a device"

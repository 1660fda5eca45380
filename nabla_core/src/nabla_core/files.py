"""Reading and writing small text files, with errors a person can act on."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from .errors import InputError

__all__ = ["check_writable", "rank_path", "read_text", "write_private_octets", "write_text"]

_MAX_BYTES = 64 * 1024 * 1024


def read_text(path: Path, max_bytes: int = _MAX_BYTES) -> str:
    """Return the text of a regular UTF-8 file of bounded size.

    Raises:
        InputError: it is missing, no regular file, too large, unreadable or not UTF-8.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: is not a regular file")
        if status.st_size > max_bytes:
            raise InputError(f"{path}: has {status.st_size} bytes, at most {max_bytes} are read")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Make sure that ``path`` can be written, before work is spent on what goes into it.

    Raises:
        InputError: the folder is missing or read-only, or ``path`` is a folder.
    """
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    if not folder.is_dir():
        raise InputError(f"{path}: folder {folder} does not exist; create it first")
    try:
        handle, probe = tempfile.mkstemp(prefix=".nabla-", dir=folder)
        os.close(handle)
        os.unlink(probe)
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{path}: is read-only")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def rank_path(path: Path) -> Path:
    """Return where this process writes what all ranks would write to ``path``.

    That is ``path`` for the first rank and outside of ``torchrun``, for the others
    ``report.rank1.json``. Pipes and devices are shared.
    """
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    alone = not (rank.isdecimal() and world.isdecimal()) or int(world) < 2 or not int(rank)
    if alone or (path.exists() and not path.is_file()):
        return path
    return path.with_name(f"{path.stem}.rank{int(rank)}{path.suffix}")


def write_text(path: Path, text: str) -> None:
    """Write ``path`` at once: readers see the old or the new file, never half of it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a pipe or device cannot be replaced
            return
        _replace(path, text.encode(), 0o666 & ~_umask())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_private_octets(path: Path, octets: bytes) -> None:
    """Write ``path`` at once, readable by its owner only.

    Raises:
        InputError: it cannot be written.
    """
    try:
        _replace(path, octets, 0o600)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _replace(path: Path, octets: bytes, mode: int) -> None:
    handle, partial = tempfile.mkstemp(prefix=".nabla-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(octets)
        os.chmod(partial, mode)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current

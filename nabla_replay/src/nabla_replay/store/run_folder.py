"""Making, opening and tidying the folder of a run; everything under its lock."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nabla_core.artifacts.opening import open_folder, read_regular
from nabla_core.artifacts.strict_json import dump_json
from nabla_core.errors import InputError

from ..errors import RunFormatError
from .header import RunHeader, header_from_json, header_to_json
from .layout import (
    CHECKPOINT_FOLDER,
    HEADER_NAME,
    LOCK_NAME,
    MAX_HEADER_BYTES,
    is_checkpoint_of,
    is_run_id,
    is_temporary_of,
    temporary_name,
)
from .locking import open_lock
from .survey import LogSurvey

__all__ = ["locked", "make_run", "open_checkpoints", "read_header", "remove_leftovers", "wait_for"]

_LOCK_WAIT_S = 60.0
_POLL_S = 0.05


def make_run(root: Path, header: RunHeader) -> Path:
    """Make the folder of a new run, with its ``run.json``.

    Raises:
        RunFormatError: the ID cannot name a folder, or a run of that ID is there.
        InputError: the folder cannot be made.
    """
    if not is_run_id(header.run_id):
        raise RunFormatError(
            f"run ID {header.run_id[:100]!r}: use letters, digits, '.', '_' and '-', at most 100"
        )
    path = root / header.run_id
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{root}: cannot be made: {error.strerror or error}") from error
    try:
        path.mkdir(mode=0o700)
        (path / CHECKPOINT_FOLDER).mkdir(mode=0o700)
        folder = open_folder(path)
        try:
            _write_header(folder, header)
        finally:
            os.close(folder)
    except FileExistsError as error:
        raise RunFormatError(
            f"{path}: there is a run of that ID; resume it, or take another ID"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror or error}") from error
    return path


def wait_for(path: Path, wait_s: float) -> None:
    """Wait until another process has made a run.

    Raises:
        InputError: it has not, within ``wait_s``.
    """
    deadline = time.monotonic() + wait_s
    while not (path / HEADER_NAME).exists():
        if time.monotonic() >= deadline:
            raise InputError(f"{path}: no run appeared there within {wait_s:g} s")
        time.sleep(_POLL_S)


def read_header(folder: int, what: str) -> RunHeader:
    """Return the header of an open folder.

    Raises:
        RunFormatError: it holds no run that this version reads.
        UnsafePathError: its ``run.json`` is a link, a pipe or a device.
        InputError: it cannot be read.
    """
    try:
        os.stat(HEADER_NAME, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise RunFormatError(f"{what}: holds no {HEADER_NAME}, so it is no captured run") from error
    except OSError as error:
        raise InputError(f"{what}: cannot be read: {error.strerror or error}") from error
    text = read_regular(HEADER_NAME, inside=folder, max_bytes=MAX_HEADER_BYTES)
    return header_from_json(text, f"{what}/{HEADER_NAME}")


@contextmanager
def locked(folder: int) -> Iterator[None]:
    """Hold the lock of a run while it is set up.

    Raises:
        RunBusyError: somebody else holds it for longer than a minute.
        InputError: the lock file cannot be made.
    """
    descriptor = open_lock(LOCK_NAME, folder, wait_s=_LOCK_WAIT_S)
    try:
        yield
    finally:
        os.close(descriptor)


def open_checkpoints(folder: int) -> int:
    """Return a descriptor of ``ckpt/``, made if it is not there.

    Raises:
        InputError: it is a link or no folder.
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        os.mkdir(CHECKPOINT_FOLDER, 0o700, dir_fd=folder)
    return open_folder(CHECKPOINT_FOLDER, inside=folder)


def remove_leftovers(folder: int, checkpoints: int, rank: int, survey: LogSurvey) -> list[str]:
    """Remove what a killed process of a rank left unfinished; return the names.

    A finished file without a record is left over too, but only a log without damage proves that the
    record is missing.

    Raises:
        OSError: something cannot be removed.
    """
    removed = []
    for descriptor in (folder, checkpoints):
        for name in os.listdir(descriptor):
            is_orphan = (
                descriptor == checkpoints
                and survey.is_intact
                and is_checkpoint_of(rank, name)
                and name not in survey.checkpoints
            )
            if is_temporary_of(rank, name) or is_orphan:
                os.unlink(name, dir_fd=descriptor)
                removed.append(name)
    return removed


def _write_header(folder: int, header: RunHeader) -> None:
    temporary = temporary_name(0, secrets.token_hex(4))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        left = memoryview(dump_json(header_to_json(header)) + b"\n")
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, HEADER_NAME, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)

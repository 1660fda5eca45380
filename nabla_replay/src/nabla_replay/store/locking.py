"""One writer per log: advisory locks of the kernel, gone with the process that held them."""

from __future__ import annotations

import fcntl
import os
import time

from nabla_core.artifacts.opening import open_appending

from ..errors import RunBusyError

__all__ = ["lock_file", "open_lock"]

_POLL_S = 0.02


def lock_file(descriptor: int, what: str, *, wait_s: float = 0.0) -> None:
    """Take the exclusive lock of an open file; closing the file gives it back.

    Args:
        descriptor: the open file.
        what: its name in errors.
        wait_s: how long somebody else may hold it.

    Raises:
        RunBusyError: somebody else still holds it.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise RunBusyError(
                    f"{what}: another process is writing it; wait until it has ended, or capture "
                    "into a run of its own"
                ) from error
            time.sleep(_POLL_S)
        else:
            return


def open_lock(name: str, inside: int, *, wait_s: float) -> int:
    """Open, create if needed, and lock a lock file; closing the descriptor gives it back.

    Raises:
        RunBusyError: somebody else still holds it.
        InputError: it cannot be made, or is no regular file.
    """
    descriptor = open_appending(name, inside=inside)
    try:
        lock_file(descriptor, name, wait_s=wait_s)
    except RunBusyError:
        os.close(descriptor)
        raise
    return descriptor

"""The append-only log of one rank: a record is in the kernel when ``append`` returns."""

from __future__ import annotations

import os
import threading
from collections import deque

from nabla_core.artifacts.opening import open_appending

from ..errors import RunBusyError
from .brief_text import BriefEntry
from .entries import Entry
from .lines import encode_line
from .locking import lock_file
from .tail import read_tail

__all__ = ["LogFile"]


class LogFile:
    """An open log that nobody else can write.

    A record is one write to a file opened for appending: a process that is killed at any moment
    loses none that :meth:`append` has returned for. What a failed or interrupted write left is cut
    off before the next record.

    Args:
        folder: descriptor of the folder of the run.
        name: file in it; made if it is not there.

    Raises:
        RunBusyError: another process writes it.
        InputError: it cannot be opened, or is no regular file.
        OSError: it cannot be read or repaired.
    """

    def __init__(self, folder: int, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._waiting: deque[Entry | BriefEntry] = deque()
        self._busy = False
        self._settled = False
        self._next = 0
        self._descriptor = open_appending(name, inside=folder)
        try:
            lock_file(self._descriptor, name)
            self.cut_bytes = self._settle()
        except (OSError, RunBusyError):
            os.close(self._descriptor)
            raise

    @property
    def next_sequence(self) -> int:
        """Number of the next record."""
        return self._next

    @property
    def descriptor(self) -> int:
        """Of the open file, for reading."""
        return self._descriptor

    def append(self, entry: Entry | BriefEntry) -> int | None:
        """Write a record and return its number.

        Returns:
            None if a signal handler calls this while the same thread is writing a record: the entry
            is then written after that one.

        Raises:
            RecordError: it cannot be stored; the log is as before.
            OSError: it cannot be written; the log is as before, once it can be written again.
        """
        with self._lock:
            if self._busy:
                self._waiting.append(entry)
                return None
            self._busy = True
            try:
                sequence = self._put(entry)
                while self._waiting:
                    self._put(self._waiting.popleft())
                return sequence
            finally:
                self._busy = False

    def sync(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            OSError: the disk failed.
        """
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def is_there(self, folder: int) -> bool:
        """Return whether the name in the folder still is this file."""
        try:
            found = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._descriptor))

    def close(self) -> None:
        """Give the file and its lock back; a half-written record is cut off, if that is possible.

        Raises:
            OSError: the file cannot be repaired; it is closed all the same.
        """
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                if not self._settled:
                    self._settle()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close the descriptor and nothing else, as a forked child must."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, entry: Entry | BriefEntry) -> int:
        if not self._settled:
            self._settle()
        sequence = self._next
        line = encode_line(sequence, entry)
        self._settled = False  # until the whole line is there
        written = os.write(self._descriptor, line)
        while written < len(line):
            written += os.write(self._descriptor, line[written:])
        self._next = sequence + 1
        self._settled = True
        return sequence

    def _settle(self) -> int:
        """Cut off what is torn; return how many bytes that were."""
        tail = read_tail(self._descriptor)
        if tail.torn_bytes:
            os.ftruncate(self._descriptor, tail.end)
        self._next = tail.next_sequence
        self._settled = True
        return tail.torn_bytes

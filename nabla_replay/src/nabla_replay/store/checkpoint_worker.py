"""Checkpoints are written by a thread of their own, from a snapshot that the training left."""

from __future__ import annotations

import math
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from nabla_core.artifacts.strict_json import JsonObject

from ..codec.freezing import FrozenState
from ..codec.writing import StoredFile, write_state
from .entries import CheckpointEntry
from .layout import temporary_name

__all__ = ["CheckpointJob", "CheckpointWorker"]

_MAX_SPARE_BYTES = 1 << 26  # a larger state takes long enough to train that fresh memory is cheap
_LOOK_S = 0.5  # a wait looks this often whether the thread still lives
_MAX_PENDING = 2
"""Snapshots in memory: one being written, one waiting. More would hide a disk that is too slow."""


@dataclass(slots=True, kw_only=True)
class CheckpointJob:
    """One checkpoint on its way to the disk.

    Attributes:
        step: last step that it contains.
        name: file under ``ckpt/``.
        frozen: the snapshot; released when it is written.
        done: set when it is committed or has failed.
        committed: whether its record is in the log.
    """

    step: int
    name: str
    frozen: FrozenState | None
    done: threading.Event = field(default_factory=threading.Event)
    committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWorker:
    """Writes the jobs one after the other.

    Attributes:
        folder: descriptor of ``ckpt/``.
        rank: of the process.
        about: further metadata of every file.
        commit: writes the record of a file that is on disk; raises OSError if it is not written.
        failed: called with what went wrong.
    """

    folder: int
    rank: int
    about: JsonObject
    commit: Callable[[CheckpointEntry], None]
    failed: Callable[[int, Exception], None]
    _jobs: queue.SimpleQueue[CheckpointJob | None] = field(default_factory=queue.SimpleQueue)
    _pending: list[CheckpointJob] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _spare: list[FrozenState] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether another job would have to wait for memory."""
        return len(self._unfinished()) >= _MAX_PENDING

    def take_spare(self) -> FrozenState | None:
        """Return a snapshot that is written, so that its memory can be used again."""
        return self._spare.pop() if self._spare else None

    def submit(self, job: CheckpointJob) -> None:
        """Hand a job over; the thread starts with the first one."""
        self._pending.append(job)
        self._jobs.put(job)
        self._have_thread()

    def finish(self, job: CheckpointJob, timeout_s: float | None = None) -> bool:
        """Wait until a job is done; return whether it is.

        A thread can die before its first line, where something traces new threads: it is replaced.
        """
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not job.done.wait(max(0.0, min(_LOOK_S, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
            self._have_thread()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all jobs are done; return whether they are."""
        return all(self.finish(job, timeout_s) for job in self._unfinished())

    def close(self, timeout_s: float | None = None) -> bool:
        """Finish all jobs and end the thread; return whether that was done in time."""
        done = self.wait(timeout_s)
        self._jobs.put(None)
        for thread in self._threads:
            thread.join(timeout_s)
        return done and not any(thread.is_alive() for thread in self._threads)

    def _have_thread(self) -> None:
        """See to it that a thread lives that takes the jobs, or give them up."""
        if any(thread.is_alive() for thread in self._threads):
            return
        name = f"nabla-checkpoints-r{self.rank}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter ends, or has no more threads
            for job in self._unfinished():
                self.failed(job.step, error)
                job.done.set()
            return
        self._threads[:] = [thread]

    def _unfinished(self) -> list[CheckpointJob]:
        self._pending[:] = [job for job in self._pending if not job.done.is_set()]
        return list(self._pending)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.done.is_set():
                continue  # given up
            try:
                self._store(job)
            except Exception as error:  # whatever it is, the training goes on
                self.failed(job.step, error)
            finally:
                self._release(job)
                job.done.set()

    def _release(self, job: CheckpointJob) -> None:
        frozen, job.frozen = job.frozen, None
        if frozen is not None and not self._spare and frozen.size_bytes <= _MAX_SPARE_BYTES:
            self._spare.append(frozen)

    def _store(self, job: CheckpointJob) -> None:
        if job.frozen is None:
            return
        names = (temporary_name(self.rank, secrets.token_hex(4)), job.name)
        about: JsonObject = {**self.about, "step": job.step}
        try:
            stored = write_state(self.folder, names, job.frozen.encoded(), about)
            self.commit(_entry(job, stored))
        except BaseException:
            with suppress(OSError):  # without its record the file is no checkpoint
                os.unlink(job.name, dir_fd=self.folder)
            raise
        job.committed = True


def _entry(job: CheckpointJob, stored: StoredFile) -> CheckpointEntry:
    return CheckpointEntry(
        step=job.step,
        name=job.name,
        size_bytes=stored.size_bytes,
        crc32=stored.crc32,
        sha256=stored.sha256,
    )

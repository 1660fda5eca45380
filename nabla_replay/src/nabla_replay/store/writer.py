"""Writing a run: records at once, checkpoints in the background, and never an error of the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from nabla_core.artifacts.opening import open_folder
from nabla_core.artifacts.strict_json import JsonObject
from nabla_core.errors import InputError
from nabla_core.issue import Issue

from ..codec.freezing import freeze
from .brief_text import BriefEntry, step_of
from .checkpoint_worker import CheckpointJob, CheckpointWorker
from .entries import CheckpointEntry, EndEntry, Entry, GapEntry, SegmentEntry
from .forking import abandon_in_children
from .header import RunHeader
from .health import Health, WriterState
from .layout import checkpoint_name, log_name
from .log_file import LogFile
from .run_folder import (
    locked,
    make_run,
    open_checkpoints,
    read_header,
    remove_leftovers,
    wait_for,
)
from .survey import survey_log
from .syncing import SyncThread
from .tables import Tables

__all__ = ["RunWriter", "SegmentStart", "WriterOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStart:
    """What a process says when it begins to write.

    Attributes:
        started_s: wall clock.
        rank: of the process.
        world_size: processes of the training.
        environment: what decides whether a replay can be exact.
        tables: what is fingerprinted, where it differs from the header's.
    """

    started_s: float
    rank: int = 0
    world_size: int = 1
    environment: JsonObject = field(default_factory=dict)
    tables: Tables | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """How a run is written.

    Attributes:
        fsync_s: a loss of power costs at most the records of so many seconds.
        on_issue: told once when the disk fails, on the thread on which it did.
    """

    fsync_s: float = 1.0
    on_issue: Callable[[Issue], None] | None = None


class RunWriter:
    """Writes one rank's part of a run. Made by :meth:`create`, :meth:`join` or :meth:`resume`.

    Once made, it raises no error of the disk: it reports one issue (REP204), goes on with less, and
    writes a gap record as soon as it can. A forked child writes nothing.

    Attributes:
        folder: of the run.
        header: of the run.
        rank: of this process.
        segment: number of this process's part of the log.
        removed: names of unfinished files that were removed when the run was opened.
    """

    def __init__(self, folder: Path, segment: SegmentStart, options: WriterOptions) -> None:
        self.folder, self.rank = folder, segment.rank
        self._health = Health(options.on_issue)
        self._is_open = True
        self._steps_stored: dict[int, CheckpointJob] = {}
        self._folder = open_folder(folder)
        self._log, self._checkpoints = self._set_up(segment)
        about: JsonObject = {
            "run_id": self.header.run_id,
            "rank": self.rank,
            "segment": self.segment,
        }
        self._worker = CheckpointWorker(
            folder=self._checkpoints,
            rank=self.rank,
            about=about,
            commit=self._commit,
            failed=self._checkpoint_failed,
        )
        self._syncing = SyncThread(self._sync, options.fsync_s, f"nabla-log-r{self.rank}")
        abandon_in_children(self)

    @classmethod
    def create(
        cls,
        root: Path,
        header: RunHeader,
        *,
        segment: SegmentStart,
        options: WriterOptions | None = None,
    ) -> RunWriter:
        """Make a new run in ``root / header.run_id``.

        Raises:
            RunFormatError: there is a run of that ID.
            InputError: it cannot be made.
        """
        return cls(make_run(root, header), segment, options or WriterOptions())

    @classmethod
    def join(
        cls,
        folder: Path,
        *,
        segment: SegmentStart,
        options: WriterOptions | None = None,
        wait_s: float = 60.0,
    ) -> RunWriter:
        """Write another rank's part of a run that rank 0 makes.

        Raises:
            RunBusyError: another process writes this rank's part.
            InputError: the run did not appear within ``wait_s``, or cannot be opened.
        """
        wait_for(folder, wait_s)
        return cls(folder, segment, options or WriterOptions())

    @classmethod
    def resume(
        cls, folder: Path, *, segment: SegmentStart, options: WriterOptions | None = None
    ) -> RunWriter:
        """Go on with a run: a new segment is appended, nothing is overwritten.

        Raises:
            RunBusyError: another process writes this rank's part.
            RunFormatError: ``folder`` holds no run that this version reads.
            InputError: it cannot be opened.
        """
        return cls(folder, segment, options or WriterOptions())

    @property
    def state(self) -> WriterState:
        """What is written: everything, only the log, or nothing."""
        return self._health.state if self._is_open else "off"

    def append(self, entry: Entry | BriefEntry) -> int | None:
        """Write a record.

        Returns:
            Its sequence number, once it survives the death of the process; ``None`` if it could not
            be written, or the writer is closed.

        Raises:
            RecordError: the entry has no stored form, or is too long.
        """
        if not self._is_open:
            return None
        if not (self._health.is_well or self._health.may_write(step_of(entry))):
            return None
        try:
            if not self._health.is_well:
                self._tell_gap()
            sequence = self._log.append(entry)
        except OSError as error:
            self._health.failed(_reason(error), step_of(entry))
            return None
        self._syncing.is_due = True
        return sequence

    def checkpoint(
        self,
        step: int,
        state: object,
        *,
        wait: bool = False,
        taken: Callable[[], object] | None = None,
    ) -> bool:
        """Take a snapshot of a state now, and store it in the background.

        Args:
            step: last step that the state contains.
            state: nested dicts, lists and tuples of tensors, arrays and scalars.
            wait: return only when it is on disk and its record in the log.
            taken: called before the snapshot is stored: two threads hinder each other.

        Returns:
            Whether it was taken (with ``wait``: stored). It is not while two are on their way, when
            checkpoints were given up, or when the writer is closed. A step that this segment has
            stored is not stored again.

        Raises:
            UnsupportedStateError: something in the state has no stored form.
        """
        if not self._is_open:
            return False
        job = self._steps_stored.get(step)
        if job is None or (job.done.is_set() and not job.committed):
            if self.state != "writing" or (self._worker.is_full and not wait):
                return False
            job = self._job(step, state)
            if job is None:
                return False
            if taken is not None:
                taken()
            self._steps_stored[step] = job
            self._worker.submit(job)
        if wait:
            self._worker.finish(job)
            return job.committed
        return True

    def gap(
        self, reason: str, first_step: int | None = None, last_step: int | None = None
    ) -> int | None:
        """Record that steps are missing on purpose; as :meth:`append`."""
        return self.append(GapEntry(reason=reason, first_step=first_step, last_step=last_step))

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all checkpoints and records are on disk; return whether they are."""
        if not self._is_open or not self._worker.wait(timeout_s):
            return False
        self._sync()
        return self.state == "writing"

    def close(self, reason: str = "closed", step: int | None = None) -> None:
        """Finish the checkpoints, write the last record, and give the run back. Once is enough."""
        if not self._is_open:
            return
        self._worker.close()
        self._syncing.stop()
        self.append(EndEntry(reason=reason, step=step))
        self._is_open = False
        try:
            self._log.sync()
            self._log.close()
        except OSError as error:
            self._health.degrade("off", _reason(error))
        finally:
            self._close_descriptors()

    def abandon(self) -> None:
        """Let go without writing anything; for a forked child."""
        self._is_open = False
        self._log.abandon()
        self._close_descriptors()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("closed" if kind is None else f"exception: {kind.__name__}")

    def _set_up(self, segment: SegmentStart) -> tuple[LogFile, int]:
        """Open the log under the lock, tidy up, and write the first record of the segment."""
        try:
            with ExitStack() as undo:
                undo.callback(os.close, self._folder)
                with locked(self._folder):
                    self.header = read_header(self._folder, str(self.folder))
                    log = LogFile(self._folder, log_name(self.rank))
                    undo.callback(log.abandon)
                    checkpoints = open_checkpoints(self._folder)
                    undo.callback(os.close, checkpoints)
                    self._tidy(log, checkpoints)
                    log.append(self._segment_entry(segment, log.cut_bytes))
                undo.pop_all()
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be opened: {_reason(error)}") from error
        return log, checkpoints

    def _tidy(self, log: LogFile, checkpoints: int) -> None:
        survey = survey_log(log.descriptor)
        self.segment = survey.segments
        self.removed = tuple(remove_leftovers(self._folder, checkpoints, self.rank, survey))

    def _segment_entry(self, segment: SegmentStart, cut_bytes: int) -> SegmentEntry:
        return SegmentEntry(
            number=self.segment,
            rank=segment.rank,
            world_size=segment.world_size,
            started_s=segment.started_s,
            environment=segment.environment,
            tables=segment.tables,
            cut_bytes=cut_bytes,
        )

    def _job(self, step: int, state: object) -> CheckpointJob | None:
        try:
            frozen = freeze(state, self._worker.take_spare())
        except (MemoryError, RuntimeError) as error:  # torch has no memory for the copy
            self._checkpoint_failed(step, error)
            return None
        name = checkpoint_name(self.rank, step, self.segment)
        return CheckpointJob(step=step, name=name, frozen=frozen)

    def _tell_gap(self) -> None:
        gap = self._health.gap()
        if gap is not None:
            self._log.append(gap)
            self._health.gap_written()

    def _commit(self, entry: CheckpointEntry) -> None:
        self._log.append(entry)
        self._sync()  # an error of it is told, but the record and its file are there

    def _checkpoint_failed(self, step: int, error: Exception) -> None:
        self._health.degrade("log only", f"checkpoint: {_reason(error)}", step)
        if self._is_open:
            self.append(GapEntry(reason=f"no checkpoint of step {step}: {_reason(error)}"))

    def _sync(self) -> None:
        try:
            self._log.sync()
        except OSError as error:
            self._health.degrade("log only", _reason(error))
        if not self._log.is_there(self._folder):
            self._health.degrade("off", "the log was removed or replaced")

    def _close_descriptors(self) -> None:
        for descriptor in (self._checkpoints, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._checkpoints = self._folder = -1


def _reason(error: Exception) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)

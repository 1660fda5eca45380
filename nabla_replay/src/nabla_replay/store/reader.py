"""Reading a run that a stranger may have made. Nothing is executed, and no link is followed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from nabla_core.artifacts.opening import open_folder, open_regular
from nabla_core.errors import InputError

from ..errors import CheckpointError, RunFormatError
from .entries import CheckpointEntry, EpochEntry, GapEntry, StepEntry
from .layout import CHECKPOINT_FOLDER, MAX_CHECKPOINT_BYTES, MAX_LOG_BYTES, log_name, rank_of_log
from .rank_log import RankLog, read_log
from .run_folder import read_header
from .survey import LogSurvey, survey_log
from .tables import Tables

__all__ = ["RunReader"]

T = TypeVar("T")


class RunReader:
    """An open run. Made by :meth:`open`; close it, or use it as a context manager.

    Attributes:
        folder: of the run.
        header: of the run.
        ranks: of the logs that are there, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._logs: dict[int, RankLog] = {}
        self._descriptor = open_folder(folder)
        try:
            self.header = read_header(self._descriptor, str(folder))
            names = os.listdir(self._descriptor)
        except OSError as error:
            self.close()
            raise InputError(f"{folder}: cannot be read: {error.strerror or error}") from error
        except InputError:
            self.close()
            raise
        ranks = (rank_of_log(name) for name in names)
        self.ranks = tuple(sorted(rank for rank in ranks if rank is not None))

    @classmethod
    def open(cls, path: str | Path) -> RunReader:
        """Open the folder of a run.

        Raises:
            RunFormatError: it holds no run that this version reads.
            UnsafePathError: it, or its ``run.json``, is a link, a pipe or a device.
            InputError: it is missing or cannot be read.
        """
        return cls(Path(path))

    def log(self, rank: int = 0) -> RankLog:
        """Return the log of a rank; it is read once.

        Raises:
            RunFormatError: there is none.
            UnsafePathError: it is a link, a pipe or a device.
            InputError: it cannot be read.
        """
        if rank not in self._logs:
            self._logs[rank] = self._with_log(rank, lambda log: read_log(log, rank))
        return self._logs[rank]

    def steps(self, rank: int = 0) -> Iterator[StepEntry]:
        """Yield the steps in the order of the log; a resumed segment may repeat some.

        Raises:
            InputError: as :meth:`log`.
        """
        return self.log(rank).entries(StepEntry)

    def epochs(self, rank: int = 0) -> Iterator[EpochEntry]:
        """Yield the starts of epochs; errors as :meth:`log`."""
        return self.log(rank).entries(EpochEntry)

    def gaps(self, rank: int = 0) -> Iterator[GapEntry]:
        """Yield what is known to be missing; errors as :meth:`log`."""
        return self.log(rank).entries(GapEntry)

    def checkpoints(self, rank: int = 0) -> tuple[CheckpointEntry, ...]:
        """Return the checkpoints that have a record; errors as :meth:`log`."""
        return tuple(self.log(rank).entries(CheckpointEntry))

    def find_checkpoint(self, step: int, rank: int = 0) -> CheckpointEntry | None:
        """Return the latest recorded checkpoint of the greatest step not after ``step``.

        Raises:
            InputError: as :meth:`log`.
        """
        fitting = [found for found in self.checkpoints(rank) if found.step <= step]
        return max(reversed(fitting), key=lambda found: found.step, default=None)

    def tables(self, rank: int = 0, segment: int = 0) -> Tables:
        """Return what a segment fingerprints; errors as :meth:`log`."""
        for found in self.log(rank).segments:
            if found.number == segment and found.tables is not None:
                return found.tables
        return self.header.tables

    def load(self, checkpoint: CheckpointEntry) -> object:
        """Return the state in a checkpoint; its tensors are in host memory.

        Raises:
            CheckpointError: it is missing, swapped or damaged, or of another run.
            UnsafePathError: it is a link, a pipe or a device, or its name leads out of the folder.
            InputError: it cannot be read.
        """
        from ..codec.reading import Promise, read_state  # torch, only when a state is wanted

        descriptor = self.open_checkpoint(checkpoint)
        try:
            promise = Promise(size_bytes=checkpoint.size_bytes, crc32=checkpoint.crc32)
            loaded = read_state(descriptor, str(self.folder / checkpoint.name), promise)
        finally:
            os.close(descriptor)
        run_id = loaded.about.get("run_id")
        if run_id != self.header.run_id or loaded.about.get("step") != checkpoint.step:
            raise CheckpointError(
                f"{checkpoint.name}: says it holds step {loaded.about.get('step')} of run "
                f"{str(run_id)[:100]!r}, not step {checkpoint.step} of {self.header.run_id!r}"
            )
        return loaded.state

    def open_checkpoint(self, checkpoint: CheckpointEntry) -> int:
        """Return a descriptor of the file of a checkpoint, which the caller closes.

        Raises:
            CheckpointError: it is missing.
            UnsafePathError: as :meth:`load`.
            InputError: it cannot be opened.
        """
        folder = open_folder(CHECKPOINT_FOLDER, inside=self._descriptor)
        try:
            return open_regular(checkpoint.name, inside=folder, max_bytes=MAX_CHECKPOINT_BYTES)
        except InputError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise CheckpointError(
                    f"{checkpoint.name}: is missing; the log says that step {checkpoint.step} was "
                    "stored in it"
                ) from error
            raise
        finally:
            os.close(folder)

    def close(self) -> None:
        """Give the folder back; what was read stays."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> RunReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def survey(self, rank: int = 0) -> LogSurvey:
        """Return the log of a rank at a glance, not every record parsed; errors as :meth:`log`."""
        return self._with_log(rank, survey_log)

    def _with_log(self, rank: int, use: Callable[[int], T]) -> T:
        if rank not in self.ranks:
            known = ", ".join(str(known) for known in self.ranks) or "none"
            raise RunFormatError(f"{self.folder}: has no log of rank {rank}; it has: {known}")
        name = log_name(rank)
        descriptor = open_regular(name, inside=self._descriptor, max_bytes=MAX_LOG_BYTES)
        try:
            return use(descriptor)
        except OSError as error:
            raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error
        finally:
            os.close(descriptor)

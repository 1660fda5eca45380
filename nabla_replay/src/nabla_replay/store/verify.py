"""Whether a stored run is intact: every line, every checkpoint, and nothing that has no place."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nabla_core.artifacts.opening import UnsafePathError, open_folder
from nabla_core.errors import InputError
from nabla_core.issue import Issue, Location, Quantity
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from ..rules import ARTIFACT_UNSAFE, RECORD_CORRUPT, RECORD_TRUNCATED
from .entries import CheckpointEntry, StepEntry
from .layout import (
    CHECKPOINT_FOLDER,
    HEADER_NAME,
    LOCK_NAME,
    is_checkpoint_name,
    is_temporary_name,
    rank_of_log,
)
from .rank_log import Damage, RankLog
from .reader import RunReader
from .resumes import resume_issues

__all__ = ["RunVerification", "verify_run"]

_PIECE_BYTES = 1 << 22
_MAX_LISTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerification(ResultMixin):
    """What was read of a run, and what is wrong with it.

    Attributes:
        issues: REP201 damage, REP202 a torn end, REP203 something that has no place there, REP104
            and REP105 what a resume changed.
        run_id: of the run.
        steps: records of steps that are good, over all ranks.
        checkpoints: that are good, over all ranks.
        fail_on: severity from which the run does not pass.
    """

    issues: tuple[Issue, ...]
    run_id: str
    steps: int
    checkpoints: int
    fail_on: Severity = Severity.MEDIUM


def verify_run(
    path: str | Path, progress: Callable[[int, int], None] | None = None
) -> RunVerification:
    """Read a whole run and compare every checksum.

    Args:
        path: folder of the run.
        progress: told how many of how many checkpoints were read.

    Raises:
        RunFormatError: it is no run that this version reads.
        UnsafePathError: the folder or its ``run.json`` is a link, a pipe or a device.
        InputError: it cannot be read.
    """
    with RunReader.open(path) as reader:
        issues = list(_strangers(reader.folder))
        logs = []
        for rank in reader.ranks:
            try:
                logs.append(reader.log(rank))
            except InputError as error:
                issues.append(_unreadable(error, rank))
        for log in logs:
            issues += _log_issues(log)
            issues += resume_issues(log, reader.header.tables)
        damaged = _checkpoint_issues(reader, logs, progress)
        issues += damaged
        return RunVerification(
            issues=tuple(_once(issues)),
            run_id=reader.header.run_id,
            steps=sum(len(tuple(log.entries(StepEntry))) for log in logs),
            checkpoints=len(_all_checkpoints(logs)) - len(damaged),
        )


def _once(issues: list[Issue]) -> Iterator[Issue]:
    """Yield the issues; what is unsafe is seen in the listing and again when it should be read."""
    told = set()
    for issue in issues:
        place = issue.where.file if issue.where is not None else None
        if issue.rule == ARTIFACT_UNSAFE.id and place in told:
            continue
        if issue.rule == ARTIFACT_UNSAFE.id:
            told.add(place)
        yield issue


def _log_issues(log: RankLog) -> Iterator[Issue]:
    for damage in log.damage:
        yield _damage_issue(log, damage)
    if log.records and not log.has_ended and not any(d.kind == "torn" for d in log.damage):
        last = log.records[-1]
        yield RECORD_TRUNCATED.issue(
            f"The log of rank {log.rank} has no last record: {last.sequence + 1} records are good, "
            "the process that wrote it was killed or still runs.",
            where=Location(rank=log.rank, file=f"steps.r{log.rank}.jsonl", line=last.line),
            records=last.sequence + 1,
        )


def _damage_issue(log: RankLog, damage: Damage) -> Issue:
    rule = RECORD_TRUNCATED if damage.kind == "torn" else RECORD_CORRUPT
    where = Location(rank=log.rank, file=f"steps.r{log.rank}.jsonl", line=damage.line)
    if damage.kind == "torn":
        message = (
            f"The log of rank {log.rank} is good up to line {damage.line - 1}; {damage.reason}."
        )
    else:
        message = f"Line {damage.line} of the log of rank {log.rank}: {damage.reason}."
    return rule.issue(
        message,
        where=where,
        kind=damage.kind,
        records=Quantity(value=damage.records, unit="records", limit=0),
    )


def _all_checkpoints(logs: list[RankLog]) -> list[tuple[int, CheckpointEntry]]:
    return [(log.rank, found) for log in logs for found in log.entries(CheckpointEntry)]


def _checkpoint_issues(
    reader: RunReader, logs: list[RankLog], progress: Callable[[int, int], None] | None
) -> list[Issue]:
    issues = []
    recorded = _all_checkpoints(logs)
    for count, (rank, entry) in enumerate(recorded, 1):
        try:
            found = _checkpoint_fault(reader, entry)
        except InputError as error:
            found = str(error)
            if isinstance(error, UnsafePathError):
                issues.append(_unsafe(found, f"{CHECKPOINT_FOLDER}/{entry.name}"))
                continue
        if found:
            where = Location(rank=rank, file=f"{CHECKPOINT_FOLDER}/{entry.name}")
            message = f"The checkpoint of step {entry.step} cannot be used: {found}."
            issues.append(RECORD_CORRUPT.issue(message, step=entry.step, where=where))
        if progress is not None:
            progress(count, len(recorded))
    return issues


def _checkpoint_fault(reader: RunReader, entry: CheckpointEntry) -> str:
    """Return what is wrong with a checkpoint, or nothing; its tensors are not made."""
    descriptor = reader.open_checkpoint(entry)
    try:
        size = os.fstat(descriptor).st_size
        if size != entry.size_bytes:
            return f"it has {size} bytes, its record says {entry.size_bytes}"
        hasher = hashlib.sha256()
        while piece := os.read(descriptor, _PIECE_BYTES):
            hasher.update(piece)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    finally:
        os.close(descriptor)
    if hasher.hexdigest() != entry.sha256:
        return "its SHA-256 is not the recorded one: a bit changed, or it is another file"
    return ""


def _strangers(path: Path) -> Iterator[Issue]:
    """Yield what lies in the folder of a run and has no place there."""
    folder = open_folder(path)
    try:
        yield from _out_of_place(folder, "", _belongs_at_top)
        checkpoints = open_folder(CHECKPOINT_FOLDER, inside=folder)
        try:
            yield from _out_of_place(checkpoints, f"{CHECKPOINT_FOLDER}/", is_checkpoint_name)
        finally:
            os.close(checkpoints)
    except UnsafePathError as error:
        yield _unsafe(str(error), CHECKPOINT_FOLDER)
    except InputError as error:
        yield RECORD_CORRUPT.issue(f"The run has no folder of checkpoints: {error}.")
    finally:
        os.close(folder)


def _out_of_place(folder: int, prefix: str, belongs: Callable[[str], bool]) -> Iterator[Issue]:
    for name in sorted(os.listdir(folder))[:_MAX_LISTED]:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        is_folder = stat.S_ISDIR(mode) and prefix + name == CHECKPOINT_FOLDER
        if is_folder or (belongs(name) and stat.S_ISREG(mode)):
            continue
        if is_temporary_name(name) and stat.S_ISREG(mode):
            yield RECORD_TRUNCATED.issue(
                "A file was never finished; resuming the run removes it.",
                where=Location(file=prefix + name),
            )
            continue
        what = "is no regular file" if belongs(name) else "has no place in a run"
        yield _unsafe(f"{prefix + name} {what}", prefix + name)


def _belongs_at_top(name: str) -> bool:
    return name in (HEADER_NAME, LOCK_NAME) or rank_of_log(name) is not None


def _unsafe(reason: str, name: str) -> Issue:
    return ARTIFACT_UNSAFE.issue(f"{reason}; it was not opened.", where=Location(file=name))


def _unreadable(error: InputError, rank: int) -> Issue:
    name = f"steps.r{rank}.jsonl"
    if isinstance(error, UnsafePathError):
        return _unsafe(str(error), name)
    return RECORD_CORRUPT.issue(
        f"The log of rank {rank} cannot be read: {error}.", where=Location(rank=rank, file=name)
    )

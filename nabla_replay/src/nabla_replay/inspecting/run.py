"""A captured run in a few facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nabla_core.errors import InputError

from ..store.entries import CheckpointEntry, EndEntry, GapEntry, NoteEntry, StepEntry
from ..store.header import RunHeader
from ..store.rank_log import RankLog
from ..store.reader import RunReader
from ..store.verify import verify_run
from ..wording import amount
from .inspection import Fact, Inspection, size_text

__all__ = ["inspect_run"]

_ISSUE_NOTE = "issue"
_MAX_VERDICTS = 20
_MAX_TEXT = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def inspect_run(path: Path, progress: Callable[[int, int], None] | None = None) -> Inspection:
    """Read a run, compare every checksum, and say what it holds.

    Raises:
        InputError: it is no run, or cannot be read.
    """
    verification = verify_run(path, progress)
    with RunReader.open(path) as reader:
        facts = list(_header_facts(reader.header))
        for rank in reader.ranks:
            try:
                log = reader.log(rank)
            except InputError:
                continue  # the verification says why
            facts += _log_facts(log, prefix=f"rank {rank} " if len(reader.ranks) > 1 else "")
    return Inspection(
        path=str(path),
        kind="captured run",
        facts=tuple(facts),
        issues=verification.issues,
        fail_on=verification.fail_on,
    )


def _header_facts(header: RunHeader) -> Iterator[Fact]:
    yield "run", header.run_id
    moment = _EPOCH + timedelta(seconds=header.created_s)
    yield "created", moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    yield "versions", ", ".join(f"{name} {text}" for name, text in header.versions.items()) or "-"
    counts = [f"{len(infos)} {table}" for table, infos in header.tables.items()]
    if counts:
        yield "watched", f"{', '.join(counts)} ({header.hash_algorithm}, all in {header.rotation})"


def _log_facts(log: RankLog, prefix: str) -> Iterator[Fact]:
    steps = list(log.entries(StepEntry))
    stored = list(log.entries(CheckpointEntry))
    lost = sum(gap.records for gap in log.entries(GapEntry))
    if steps:
        span = f"{steps[0].step} to {steps[-1].step} ({amount(len(steps), 'record')})"
        yield f"{prefix}steps", span if not lost else f"{span}, {lost} lost to a failing disk"
        looked = sum(not step.is_brief for step in steps)
        if looked < len(steps):
            brief = "the others are recorded in brief: loss, place in the data, one parameter"
            yield f"{prefix}fingerprints", f"of {amount(looked, 'step')}; {brief}"
    else:
        yield f"{prefix}steps", "none"
    losses = [step.loss for step in steps if step.loss is not None]
    if losses:
        yield f"{prefix}loss", f"{losses[0]:.6g} at first, {losses[-1]:.6g} at last"
    size_bytes = sum(entry.size_bytes for entry in stored)
    places = ", ".join(str(entry.step) for entry in stored[-8:])
    more = "..., " if len(stored) > 8 else ""
    yield (
        f"{prefix}checkpoints",
        f"{len(stored)} ({size_text(size_bytes)}): steps {more}{places}" if stored else "none",
    )
    yield f"{prefix}segments", f"{len(log.segments)}, the last one {_ending(log)}"
    yield from _verdicts(log, prefix)


def _ending(log: RankLog) -> str:
    ends = list(log.entries(EndEntry))
    if not log.has_ended or not ends:
        return "not closed: killed, or still running"
    reason = ends[-1].reason
    return "closed" if reason == "closed" else f"closed ({reason[:_MAX_TEXT]})"


def _verdicts(log: RankLog, prefix: str) -> Iterator[Fact]:
    """What was found while the run was captured; its own checksums are judged apart."""
    found = [note.body for note in log.entries(NoteEntry) if note.name == _ISSUE_NOTE]
    for body in found[:_MAX_VERDICTS]:
        match body:
            case {"rule": str(rule), "message": str(message), **rest}:
                step = rest.get("step")
                when = f" at step {step}" if isinstance(step, int) else ""
                yield f"{prefix}verdict", f"{rule[:20]}{when}: {message[:_MAX_TEXT]}"
    if len(found) > _MAX_VERDICTS:
        yield f"{prefix}verdicts", f"and {len(found) - _MAX_VERDICTS} more"

"""What differs between the segments of one log: facts that a resume changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from nabla_core.issue import Issue, Location
from nabla_core.severity import Severity

from ..rules import ENVIRONMENT_DIFFERS, RESUMED_RUN_DIFFERS
from .entries import SegmentEntry
from .rank_log import RankLog
from .tables import Tables, TensorInfo

__all__ = ["resume_issues"]


def resume_issues(log: RankLog, tables: Tables) -> Iterator[Issue]:
    """Yield what each resume changed of the world size and of the fingerprinted tensors.

    Args:
        log: of one rank.
        tables: of the header, which hold where a segment names none.
    """
    for before, after in pairwise(log.segments):
        if before.world_size != after.world_size:
            yield ENVIRONMENT_DIFFERS.issue(
                f"Segment {after.number} ran with {after.world_size} processes, segment "
                f"{before.number} with {before.world_size}: sums over ranks differ in their bits.",
                where=Location(rank=log.rank),
                severity=Severity.INFO,  # a choice, and no fault of what is stored
                world_size=after.world_size,
            )
        yield from _table_issues(log.rank, (before, after), tables)


def _table_issues(
    rank: int, segments: tuple[SegmentEntry, SegmentEntry], tables: Tables
) -> Iterator[Issue]:
    before, after = (tables if one.tables is None else one.tables for one in segments)
    changed = [*_changes(before, after)]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        yield RESUMED_RUN_DIFFERS.issue(
            f"Segment {segments[1].number} trains other tensors than segment "
            f"{segments[0].number}: {changed[0]}{more}.",
            where=Location(rank=rank),
            severity=Severity.LOW,  # a new head is a choice; that it is another run is a fact
            tensors=len(changed),
        )


def _changes(before: Tables, after: Tables) -> Iterator[str]:
    for table in sorted({*before, *after}):
        old = {info.name: info for info in before.get(table, ())}
        new = {info.name: info for info in after.get(table, ())}
        for name in [*old, *(name for name in new if name not in old)]:
            if old.get(name) != new.get(name):
                yield f"{name[:80]} was {_form(old.get(name))} and is {_form(new.get(name))}"


def _form(info: TensorInfo | None) -> str:
    return "not there" if info is None else f"{info.dtype} {list(info.shape)}"

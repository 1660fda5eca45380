"""The log of one rank, read: its records, and what is wrong between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from ..errors import RecordError
from .entries import EndEntry, Entry, SegmentEntry
from .line_stream import RawLine, read_lines
from .lines import parse_line

__all__ = ["Damage", "DamageKind", "RankLog", "Record", "read_log"]

T = TypeVar("T")

DamageKind: TypeAlias = Literal["corrupt", "missing", "repeated", "torn"]
"""A line that is not as it was written; records that are not there; a record that comes again or
too late; an end without a newline."""

_MAX_DAMAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A good record and where it stands."""

    sequence: int
    segment: int
    line: int
    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that is wrong with a log.

    Attributes:
        kind: see :data:`DamageKind`.
        line: 1-based, at which it was seen.
        reason: what is wrong, in words.
        records: how many records are concerned.
    """

    kind: DamageKind
    line: int
    reason: str
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """All that a log says.

    Attributes:
        rank: of the process that wrote it.
        records: the good ones, in order.
        damage: what is wrong, in order; after 1,000 findings the rest is one.
    """

    rank: int
    records: tuple[Record, ...]
    damage: tuple[Damage, ...]

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """The starts of its parts."""
        return tuple(self.entries(SegmentEntry))

    @property
    def has_ended(self) -> bool:
        """Whether the last segment was closed on purpose."""
        return bool(self.records) and isinstance(self.records[-1].entry, EndEntry)

    def entries(self, kind: type[T]) -> Iterator[T]:
        """Yield the entries of one kind."""
        return (record.entry for record in self.records if isinstance(record.entry, kind))


def read_log(descriptor: int, rank: int) -> RankLog:
    """Read an open log. Damage never hides the good records around it.

    Raises:
        OSError: reading fails.
    """
    reading = _Reading()
    for raw in read_lines(descriptor):
        reading.take(raw)
    return RankLog(rank=rank, records=tuple(reading.records), damage=tuple(reading.damage))


class _Reading:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.damage: list[Damage] = []
        self.due = 0
        self.unread = 0  # damaged lines since the last good record: each may be one
        self.segment = 0

    def take(self, raw: RawLine) -> None:
        if not raw.is_complete:
            size = "more than a record's" if raw.text is None else len(raw.text)
            self.find("torn", raw.number, f"the log ends within a record ({size} bytes of it)")
            return
        try:
            if raw.text is None:
                raise RecordError("is longer than any record")
            line = parse_line(raw.text)
        except RecordError as error:
            self.find("corrupt", raw.number, str(error))
            self.unread += 1
            return
        if line.sequence < self.due:
            reason = f"is record {line.sequence} where {self.due} was due"
            self.find("repeated", raw.number, reason)
            return
        missing = line.sequence - self.due - self.unread
        if missing > 0:
            words = f"record {line.sequence - 1} is" if missing == 1 else f"{missing} records are"
            self.find("missing", raw.number, f"{words} missing before it", missing)
        self.due, self.unread = line.sequence + 1, 0
        if isinstance(line.entry, SegmentEntry):
            self.segment = line.entry.number
        self.records.append(
            Record(sequence=line.sequence, segment=self.segment, line=raw.number, entry=line.entry)
        )

    def find(self, kind: DamageKind, line: int, reason: str, records: int = 1) -> None:
        if len(self.damage) == _MAX_DAMAGE:
            last = self.damage[-1]
            self.damage[-1] = Damage(
                kind=last.kind,
                line=last.line,
                reason="and more after it",
                records=last.records + records,
            )
            return
        self.damage.append(Damage(kind=kind, line=line, reason=reason, records=records))

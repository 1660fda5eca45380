"""A log at a glance: every checksum is compared, and only the few lines that matter are parsed.

A writer that goes on and a list of runs need no more, and it is some twenty times faster than
reading every record.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RecordError
from .entries import CheckpointEntry, SegmentEntry, StepEntry
from .line_stream import RawLine, read_lines
from .lines import check_line, parse_line

__all__ = ["LogSurvey", "survey_log"]

_KIND_WITHIN = 64
_STEP, _END = b'"k":"step"', b'"k":"end"'
_PARSED = (b'"k":"ckpt"', b'"k":"head"')


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurvey:
    """What is in a log.

    Attributes:
        segments: how many there are.
        checkpoints: names of the files that have a record.
        damaged: lines whose checksum or form is wrong, a torn end among them.
        first: first step.
        last: last step.
        has_ended: whether the last good record says that the run was closed.
    """

    segments: int = 0
    checkpoints: frozenset[str] = frozenset()
    damaged: int = 0
    first: StepEntry | None = None
    last: StepEntry | None = None
    has_ended: bool = False

    @property
    def is_intact(self) -> bool:
        """Whether every line is."""
        return not self.damaged


def survey_log(descriptor: int) -> LogSurvey:
    """Look at every line of an open log.

    Raises:
        OSError: reading fails.
    """
    survey = _Survey()
    for raw in read_lines(descriptor):
        try:
            survey.take(raw)
        except RecordError:
            survey.damaged += 1
    return survey.summary()


class _Survey:
    def __init__(self) -> None:
        self.segments, self.damaged = 0, 0
        self.names: set[str] = set()
        self.first: bytes | None = None
        self.last: bytes | None = None
        self.has_ended = False

    def take(self, raw: RawLine) -> None:
        if raw.text is None or not raw.is_complete:
            raise RecordError("is longer than any record, or torn")
        check_line(raw.text)
        head = raw.text[:_KIND_WITHIN]
        self.has_ended = _END in head
        if _STEP in head:
            self.first = self.first or raw.text
            self.last = raw.text
        elif any(kind in head for kind in _PARSED):
            match parse_line(raw.text).entry:
                case SegmentEntry(number=number):
                    self.segments = max(self.segments, number + 1)
                case CheckpointEntry(name=name):
                    self.names.add(name)

    def summary(self) -> LogSurvey:
        return LogSurvey(
            segments=self.segments,
            checkpoints=frozenset(self.names),
            damaged=self.damaged,
            first=_step(self.first),
            last=_step(self.last),
            has_ended=self.has_ended,
        )


def _step(line: bytes | None) -> StepEntry | None:
    """Parse a step whose checksum is right; one of the wrong form counts as none."""
    try:
        entry = parse_line(line).entry if line is not None else None
    except RecordError:
        return None
    return entry if isinstance(entry, StepEntry) else None

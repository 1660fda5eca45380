"""A rank's log, put in order: the steps of each segment, and what lies between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

from nabla_core.artifacts.strict_json import JsonValue

from ..capturing.notes import (
    EVALUATED_NOTE,
    LOADED_NOTE,
    SETTINGS_NOTE,
    SKIPPED_NOTE,
    SNAPSHOT_NOTE,
    STATE_NOTE,
    TRACE_NOTE,
    WITHIN_NOTE,
)
from ..capturing.rates import with_earlier_rates
from ..errors import RecordError
from ..store.entries import CheckpointEntry, EpochEntry, GapEntry, NoteEntry, StepEntry
from ..store.rank_log import RankLog, Record

__all__ = ["EpochStart", "Segment", "Snapshot", "epoch_state", "segments_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A checkpoint that is on disk.

    Attributes:
        records: how many steps of the segment it contains.
        checkpoint: its record.
    """

    records: int
    checkpoint: CheckpointEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """The beginning of a pass over the training data.

    Attributes:
        records: how many steps of the segment came before it.
        entry: its record.
    """

    records: int
    entry: EpochEntry


@dataclass(slots=True, kw_only=True)
class Segment:
    """What one process recorded.

    Attributes:
        number: 0-based.
        environment: settings when it began.
        steps: in order.
        snapshots: in order of the steps that they contain.
        epochs: in order.
        traces: by number of the steps before it: what the calls of modules gave.
        evaluated: by number of the steps before it: calls of modules without gradients.
        loaded: numbers of steps before which a state was put into the model.
        settings: by number of the steps before it: how the modules were set.
        skipped: by number of the steps before it: batches that had no part in a step.
        saved: by step that was recorded in brief: digests of the state that was saved after it.
        within: whether steps were recorded when the optimizer had acted, before the rest of the
            step (scheduler, scaler, averages).
        ends: index of the optimizer after which a step was recorded, where there are several.
        gaps: records that are known to be missing, by gap records or by damage of the log.
    """

    number: int
    environment: Mapping[str, JsonValue] = field(default_factory=dict)
    steps: list[StepEntry] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    epochs: list[EpochStart] = field(default_factory=list)
    traces: dict[int, JsonValue] = field(default_factory=dict)
    evaluated: dict[int, int] = field(default_factory=dict)
    loaded: set[int] = field(default_factory=set)
    settings: dict[int, JsonValue] = field(default_factory=dict)
    skipped: dict[int, frozenset[int]] = field(default_factory=dict)
    saved: dict[int, Mapping[str, str]] = field(default_factory=dict)
    within: bool = False
    ends: int | None = None
    gaps: int = 0

    @property
    def unrecorded(self) -> int:
        """Steps that the program took before the first one that was recorded, as far as known."""
        is_first = self.within and not self.number  # a resume begins where it says
        return self.steps[0].step if is_first and self.steps else 0

    @property
    def coming(self) -> int:
        """Number of the step after the last recorded one: it may have been begun."""
        if len(self.steps) < 2:
            return self.steps[0].step + 1 if self.steps else 0
        return self.steps[-1].step + max(self.steps[-1].step - self.steps[-2].step, 1)

    def snapshot_before(self, index: int) -> Snapshot | None:
        """Return the latest checkpoint that contains none of the steps from ``index`` on."""
        fitting = [one for one in self.snapshots if one.records <= index]
        return fitting[-1] if fitting else None

    def snapshot_after(self, index: int) -> Snapshot | None:
        """Return the earliest checkpoint that contains the step with ``index``."""
        return next((one for one in self.snapshots if one.records > index), None)

    def index_of(self, step: int, start: int = 0) -> int | None:
        """Return the index of a step from ``start`` on."""
        here = range(start, len(self.steps))
        return next((index for index in here if self.steps[index].step == step), None)

    def begins_epoch(self, step: int) -> bool:
        """Whether a step is the first of an epoch, and other epochs came before."""
        begun = {one.records for one in self.epochs if one.entry.epoch > 0}
        return any(one.step == step for at in begun for one in self.steps[at : at + 1])

    def missing_before(self, index: int) -> int:
        """Return how many steps before the one with ``index`` have no record.

        Only a log that is known to lack some is judged by its numbers: a program may count by tens.
        """
        if not self.gaps or not index:
            return 0
        stride = min(
            (b.step - a.step for a, b in pairwise(self.steps) if b.step > a.step), default=1
        )
        jump = self.steps[index].step - self.steps[index - 1].step
        return max(jump // stride - 1, 0)

    def epoch_at(self, records: int, number: int) -> EpochStart | None:
        """Return the start of epoch ``number``, recorded after ``records`` steps or later."""
        return next(
            (one for one in self.epochs if one.records >= records and one.entry.epoch == number),
            None,
        )


def segments_of(log: RankLog) -> tuple[Segment, ...]:
    """Sort the records of a log.

    A record that is missing in the middle of a segment shifts nothing: every note about steps says
    how many there were when it was written.
    """
    found: dict[int, Segment] = {}
    for start in log.segments:
        found[start.number] = Segment(number=start.number, environment=start.environment)
    waiting: dict[tuple[int, int], int] = {}
    for record in log.records:
        segment = found.setdefault(record.segment, Segment(number=record.segment))
        _take(segment, record, waiting)
    lost = sum(damage.records for damage in log.damage if damage.kind in ("corrupt", "missing"))
    for segment in found.values():
        segment.gaps += lost
        segment.snapshots.sort(key=lambda one: one.records)
    return tuple(found[number] for number in sorted(found))


def _take(segment: Segment, record: Record, waiting: dict[tuple[int, int], int]) -> None:
    match record.entry:
        case StepEntry() as step:
            before = segment.steps[-1].signals if segment.steps else {}
            signals = with_earlier_rates(step.signals, before)
            segment.steps.append(
                step if signals is step.signals else replace(step, signals=signals)
            )
        case EpochEntry() as epoch:
            segment.epochs.append(EpochStart(records=len(segment.steps), entry=epoch))
        case GapEntry() as gap:
            segment.gaps += max(gap.records, 1)
        case CheckpointEntry() as checkpoint:
            records = waiting.get((segment.number, checkpoint.step))
            if records is not None:
                segment.snapshots.append(Snapshot(records=records, checkpoint=checkpoint))
        case NoteEntry() as note:
            _take_note(segment, note, waiting)
        case _:
            return


def _take_note(segment: Segment, note: NoteEntry, waiting: dict[tuple[int, int], int]) -> None:
    count = len(segment.steps)
    if note.name == SNAPSHOT_NOTE:
        waiting[segment.number, _label(note.body)] = count
    elif note.name == TRACE_NOTE:
        segment.traces[count] = note.body
    elif note.name == WITHIN_NOTE:
        segment.within = True
        ends = note.body.get("ends") if isinstance(note.body, dict) else None
        segment.ends = ends if isinstance(ends, int) else None
    elif note.name == EVALUATED_NOTE and isinstance(note.body, dict):
        calls = note.body.get("calls")
        known = segment.evaluated.get(count, 0)
        segment.evaluated[count] = known + (calls if isinstance(calls, int) else 0)
    elif note.name == LOADED_NOTE:
        segment.loaded.add(count)
    elif note.name == SETTINGS_NOTE:
        segment.settings[count] = note.body
    elif note.name == SKIPPED_NOTE and isinstance(note.body, dict):
        positions = note.body.get("positions")
        if isinstance(positions, list):
            segment.skipped[count] = frozenset(one for one in positions if type(one) is int)
    elif note.name == STATE_NOTE:
        segment.saved.update(_saved(note.body))


def _label(body: JsonValue) -> int:
    match body:
        case {"step": int(step)}:
            return step
    raise RecordError("a note about a checkpoint has the wrong form")


def _saved(body: JsonValue) -> dict[int, Mapping[str, str]]:
    match body:
        case {"step": int(step), "digests": dict(digests)}:
            texts = cast("Mapping[str, JsonValue]", digests)
            return {step: {name: str(text) for name, text in texts.items()}}
    raise RecordError("a note about a saved state has the wrong form")


def epoch_state(start: EpochStart) -> Mapping[str, object]:
    """Return the generators and the loader as they were before an epoch.

    Raises:
        RecordError: the record has the wrong form.
    """
    from ..codec.inline import unpack

    state = unpack(start.entry.state)
    if not isinstance(state, Mapping) or "generators" not in state or "loader" not in state:
        raise RecordError("the record of an epoch has the wrong form")
    return cast("Mapping[str, object]", state)

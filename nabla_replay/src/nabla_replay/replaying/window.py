"""Executes recorded steps again from a checkpoint on, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from nabla_core.errors import UsageError

from ..capturing.between import ProgramChanged, put_between_state
from ..capturing.brief import anchor_in
from ..capturing.held import extra_digest, held_digest
from ..capturing.look import StepFacts, StepLook
from ..capturing.program_state import (
    StateTree,
    missing_parts,
    restore_generators_of,
    restore_parts,
)
from ..capturing.settings import put_settings
from ..errors import RecordError
from ..fingerprints.call_record import StepTrace
from ..fingerprints.fingerprinter import Fingerprinter
from ..fingerprints.module_trace import ModuleTrace
from ..store.entries import StepEntry
from ..store.reader import RunReader
from .ahead import waiting_before
from .counters import put_counters
from .drawing import draw
from .feed import BatchFeed, length_of
from .habits import Habits
from .history import Segment
from .looking import Look
from .observation import facts_of
from .program import Program
from .rates import after_look, before_batches, before_look, before_step
from .recorded_state import recorded_state
from .targets import batches_of_last, target_of

__all__ = ["Executed", "Window", "part_in"]

_PLAIN = Habits()
_MOST_SKIPPED = 64  # calls of step() in a row in which no optimizer acts


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One step that was executed again.

    Attributes:
        index: of the step in its segment.
        recorded: its record; ``None`` for a step whose record is missing.
        replayed: a record made now.
        trace: what the calls of modules gave, where that was asked for.
        evaluations: calls of modules without gradients since the step before, where they are seen.
    """

    index: int
    recorded: StepEntry | None
    replayed: StepEntry | None
    trace: StepTrace | None = None
    evaluations: int = 0


class Window:
    """Steps of one segment, from the latest checkpoint before them on.

    Args:
        reader: of the run.
        segment: the steps.
        program: executes them.
        fingerprinter: hashes the tensors of ``program``.
        habits: what the recorded loop did around its steps.

    Attributes:
        missing: components that the program lacks.
        has_stale_extra: whether the recorded program had changed its extra state between two epochs
            since the checkpoint.
    """

    def __init__(
        self,
        reader: RunReader,
        segment: Segment,
        program: Program,
        fingerprinter: Fingerprinter,
        habits: Habits = _PLAIN,
    ) -> None:
        self.segment = segment
        self.habits = habits
        self.program = program
        self.fingerprinter = fingerprinter
        self.missing: tuple[str, ...] = ()
        self.has_stale_extra = False
        self._reader = reader
        self._look = StepLook(program.parts, fingerprinter)
        self._feed: BatchFeed | None = None
        self._has_acted = True

    def restore(self, first: int) -> int:
        """Put the program where it was before the step with index ``first``, or earlier.

        Returns:
            The index of the step that comes next.

        Raises:
            RecordError: there is no checkpoint, or it does not fit the program.
            CheckpointError: the checkpoint is damaged.
        """
        if self.habits.from_empty:
            first = self._nothing_waits(first)
            if first < 0:
                return self.start_over()
        snapshot = self.segment.snapshot_before(first)
        if snapshot is None:
            raise RecordError(
                f"segment {self.segment.number} has no checkpoint before its step {first}: "
                "nothing can be replayed from there"
            )
        state = cast("StateTree", self._reader.load(snapshot.checkpoint))
        if not isinstance(state, Mapping) or not {"model", "generators"} <= state.keys():
            raise RecordError(f"{snapshot.checkpoint.name}: holds no state of a captured program")
        parts, habits = self.program.parts, self.habits
        self.has_stale_extra = False
        with recorded_state(snapshot.checkpoint.name):
            self.missing = missing_parts(parts, state)
            restore_parts(parts, state)
        if parts.loader is not None:
            place = cast("Mapping[str, object] | None", state.get("loader"))
            self._feed = BatchFeed(
                parts.loader,
                place,
                self.segment,
                snapshot.records,
                between=self._put_between,
                habits=habits,
            )
        put_counters(self.program, habits.counters, habits.counted_before + snapshot.records)
        restore_generators_of(state)
        return snapshot.records

    def start_over(self) -> int:
        """Execute the program from its beginning, up to where the first recorded step begins.

        Nothing is restored except where the data of an epoch follows from the generators. Give the
        program freshly made.

        Returns:
            The index of the step that comes next: 0.

        Raises:
            RecordError: the first state of the segment was not stored, where that is needed.
        """
        unrecorded = self.segment.unrecorded
        if not unrecorded and not self.habits.from_empty:
            return self.restore(0)
        if self.program.parts.loader is not None:
            self._feed = BatchFeed(
                self.program.parts.loader, None, self.segment, 0, habits=self.habits
            )
        for number in range(unrecorded):
            self._take(number, None)
        return 0

    def run(self, first: int, last: int, wants_trace: Callable[[int], bool]) -> Iterator[Executed]:
        """Execute the steps with indices ``first`` to ``last``; call :meth:`restore` before.

        Args:
            first: what :meth:`restore` returned.
            last: index of the last step.
            wants_trace: whether the modules of a step are traced.
        """
        index = first
        while index <= last:
            recorded = self.segment.steps[index]
            for _ in range(self.segment.missing_before(index)):
                self._take(recorded.step, None)
                yield Executed(index=index, recorded=None, replayed=None)
            executed = self._once(index, trace=wants_trace(index))
            yield from executed[: last + 1 - index]
            index += len(executed)

    def execute(self, index: int) -> object:
        """Execute one step as the program does, and look at nothing.

        Args:
            index: of a recorded step, or of the one after the last: it was begun and not finished,
                and is taken to need as many batches as the step before it.
        """
        steps = self.segment.steps
        if index < len(steps):
            self._set(index)
            before_batches(self.habits, self.program.parts, self.segment, index)
            return self._take(steps[index].step, target_of(steps[index]), index)
        returned: object = None
        for _ in range(batches_of_last(steps)):
            returned = self._take(self.segment.coming, None)
        return returned

    # ------------------------------------------------------------------ private
    def _nothing_waits(self, first: int) -> int:
        """Return the index after the latest checkpoint at which no batch waited for its step; -1 if
        there was none."""
        length = length_of(self.program.parts.loader)
        return max(
            (
                one.records
                for one in self.segment.snapshots
                if one.records <= first
                and not waiting_before(self.segment, one.records, self.habits, length)
                and (one.records or not self.segment.unrecorded)
            ),
            default=-1,
        )

    def _once(self, index: int, *, trace: bool) -> list[Executed]:
        """Call the program's step: one recorded step, or several if it lets its optimizer act more
        than once."""
        recorded = self.segment.steps[index]
        parts, made = self.program.parts, self.fingerprinter
        traced = trace and not parts.wrappers
        tracer = ModuleTrace(parts.model, made.algorithm) if traced else None
        look = Look(self.program, self.segment, index, self.seen, tracer)
        try:
            self._set(index)
            draw(dict(self.habits.draws).get(index, ()))
            before_batches(self.habits, parts, self.segment, index)
            look.begin(within=self.segment.within)
            returned = self._take(recorded.step, target_of(recorded), index)
            for _ in range(_MOST_SKIPPED if self.segment.within else 0):
                if look.entries or target_of(recorded) is not None:
                    break  # the batches of a recorded place are all taken
                returned = self._take(recorded.step, None)  # a scaler skipped the step, or a try
            before_look(self.habits, parts, recorded)
            if not self.segment.within and self._has_acted:
                look.take(facts_of(recorded.step, returned))
        finally:
            look.end()
        after_look(self.habits, parts, self.segment)
        steps = self.segment.steps
        found = [
            Executed(
                index=index + turn,
                recorded=steps[index + turn],
                replayed=entry,
                evaluations=look.evaluations[turn],
            )
            for turn, entry in enumerate(look.entries)
        ]
        if not found:
            return [Executed(index=index, recorded=recorded, replayed=None, trace=look.trace)]
        return [replace(found[0], trace=look.trace), *found[1:]]

    def _put_between(self, epoch: int, state: Mapping[str, object]) -> None:
        """Change what the recorded program had changed before an epoch; what else it had changed
        cannot be put back.

        Raises:
            ProgramChanged: it had changed more.
        """
        parts = self.program.parts
        with recorded_state(f"the record of epoch {epoch}"):
            put_between_state(parts, cast("Mapping[str, object]", state.get("between", {})))
        extra = state.get("held extra")
        self.has_stale_extra |= extra not in (None, extra_digest(parts, self.fingerprinter))
        if state.get("held") not in (None, held_digest(parts, self.fingerprinter)):
            raise ProgramChanged(
                f"where epoch {epoch} began, the recorded program held other weights, buffers or "
                "optimizer state than its steps had left: it changed them between the epochs and "
                "outside of step(), which a replay does not"
            )

    def _set(self, index: int) -> None:
        """Set the modules as they were in the step with this index, where that was noted."""
        note = self.segment.settings.get(index)
        if note is not None:
            put_settings(self.program.parts.model, note)

    def _take(self, number: int, target: tuple[int, int] | None, index: int = -1) -> object:
        if self._feed is None:
            before_step(self.habits, self.program.parts, self.segment, index)
            return self._alone(number)
        returned: object = None
        self._has_acted = False  # the batches of a step may come from elsewhere
        skipped = self.segment.skipped.get(index, frozenset())
        for batch in self._feed.take(target, skipped):
            before_step(self.habits, self.program.parts, self.segment, index)
            self._has_acted = True
            try:
                returned = self.program.step(number, batch)
            except Exception:
                if target is None or (self._feed.epoch, self._feed.position) == target:
                    raise
                # the recorded program took another batch for this step: it went on after an error
        self._feed.step_taken()
        return returned

    def _alone(self, number: int) -> object:
        try:
            return self.program.step(number, None)
        except Exception as error:
            if "loader" not in self.missing:
                raise
            raise UsageError(
                f"replay: the step raised {type(error).__name__}: {error}. The recorded run took "
                "its batches from a loader, and the program to replay has none: give loader=..., "
                "or let build() return an object with a loader"
            ) from error

    def seen(self, recorded: StepEntry, facts: StepFacts) -> StepEntry:
        """Make a record of the program as it is now, of the same part as another one."""
        feed = self._feed
        place = None if feed is None or feed.epoch < 0 else f"{feed.epoch}:{feed.position}"
        if recorded.is_brief:
            return self._seen_in_brief(recorded, facts, place)
        part, parts = part_in(recorded)
        if parts != self.fingerprinter.parts:
            self.fingerprinter.turn(parts)
        return self._look(facts, recorded.step, part, place)

    def _seen_in_brief(self, recorded: StepEntry, facts: StepFacts, place: str | None) -> StepEntry:
        made = self.fingerprinter
        anchors = {name: anchor_in(name, len(made.entries)) for name in recorded.vectors}
        return StepEntry(
            step=recorded.step,
            loss=facts.loss,
            batch=facts.batch,
            digests={} if place is None else {"loader": place},
            vectors={
                name: made.packed_entry(index)
                for name, index in anchors.items()
                if index is not None
            },
        )


def part_in(recorded: StepEntry) -> tuple[int, int]:
    """Return which part of the state a record holds, and of how many."""
    for name in recorded.vectors:
        part, _, parts = name.partition("/")
        if part.isdecimal() and parts.isdecimal() and int(part) < int(parts) <= 1 << 16:
            return int(part), int(parts)
    return 0, 1

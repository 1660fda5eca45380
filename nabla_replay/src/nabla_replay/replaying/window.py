"""Executes recorded steps again from a checkpoint on, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from nabla_core.errors import UsageError

from ..capturing.live import StepBoundary
from ..capturing.look import StepFacts, StepLook
from ..capturing.program_state import (
    StateTree,
    missing_parts,
    restore_generators_of,
    restore_parts,
)
from ..errors import RecordError
from ..fingerprints.call_record import StepTrace
from ..fingerprints.fingerprinter import Fingerprinter
from ..fingerprints.module_trace import ModuleTrace
from ..store.entries import StepEntry
from ..store.reader import RunReader
from .feed import BatchFeed
from .history import Segment
from .observation import facts_of
from .program import Program

__all__ = ["Executed", "Window", "part_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One step that was executed again.

    Attributes:
        index: of the step in its segment.
        recorded: its record; ``None`` for a step whose record is missing.
        replayed: a record made now.
        trace: what the calls of modules gave, where that was asked for.
    """

    index: int
    recorded: StepEntry | None
    replayed: StepEntry | None
    trace: StepTrace | None = None


class Window:
    """Steps of one segment, from the latest checkpoint before them on.

    Args:
        reader: of the run.
        segment: the steps.
        program: executes them.
        fingerprinter: hashes the tensors of ``program``.
    """

    def __init__(
        self, reader: RunReader, segment: Segment, program: Program, fingerprinter: Fingerprinter
    ) -> None:
        self.segment = segment
        self.program = program
        self.fingerprinter = fingerprinter
        self.missing: tuple[str, ...] = ()
        self._reader = reader
        self._look = StepLook(program.parts, fingerprinter)
        self._feed: BatchFeed | None = None

    def restore(self, first: int) -> int:
        """Put the program where it was before the step with index ``first``, or earlier.

        Returns:
            The index of the step that comes next.

        Raises:
            RecordError: there is no checkpoint, or it does not fit the program.
            CheckpointError: the checkpoint is damaged.
        """
        snapshot = self.segment.snapshot_before(first)
        if snapshot is None:
            raise RecordError(
                f"segment {self.segment.number} has no checkpoint before its step {first}: "
                "nothing can be replayed from there"
            )
        state = cast("StateTree", self._reader.load(snapshot.checkpoint))
        if not isinstance(state, Mapping) or not {"model", "generators"} <= state.keys():
            raise RecordError(f"{snapshot.checkpoint.name}: holds no state of a captured program")
        parts = self.program.parts
        self.missing = missing_parts(parts, state)
        restore_parts(parts, state)
        if parts.loader is not None:
            place = cast("Mapping[str, object] | None", state.get("loader"))
            self._feed = BatchFeed(parts.loader, place, self.segment, snapshot.records)
        restore_generators_of(state)
        return snapshot.records

    def run(self, first: int, last: int, wants_trace: Callable[[int], bool]) -> Iterator[Executed]:
        """Execute the steps with indices ``first`` to ``last``; call :meth:`restore` before.

        Args:
            first: what :meth:`restore` returned.
            last: index of the last step.
            wants_trace: whether the modules of a step are traced.
        """
        for index in range(first, last + 1):
            recorded = self.segment.steps[index]
            for _ in range(self.segment.missing_before(index)):
                self._take(recorded.step, None)
                yield Executed(index=index, recorded=None, replayed=None)
            yield self._once(index, trace=wants_trace(index))

    def execute(self, index: int) -> object:
        """Execute one step as the program does, and look at nothing."""
        recorded = self.segment.steps[index]
        return self._take(recorded.step, _target(recorded))

    # ------------------------------------------------------------------ private
    def _once(self, index: int, *, trace: bool) -> Executed:
        recorded = self.segment.steps[index]
        look = _Look(self, recorded, trace=trace)
        try:
            if self.segment.within:
                look.listen()
            returned = self._take(recorded.step, _target(recorded))
            if not self.segment.within:
                look.take(facts_of(recorded.step, returned))
        finally:
            look.end()
        return Executed(index=index, recorded=recorded, replayed=look.entry, trace=look.trace)

    def _take(self, number: int, target: tuple[int, int] | None) -> object:
        if self._feed is None:
            return self._alone(number)
        returned: object = None
        for batch in self._feed.take(target):
            returned = self.program.step(number, batch)
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
        part, parts = part_in(recorded)
        if parts != self.fingerprinter.parts:
            self.fingerprinter.turn(parts)
        feed = self._feed
        place = None if feed is None or feed.epoch < 0 else f"{feed.epoch}:{feed.position}"
        return self._look(facts, recorded.step, part, place)


class _Look:
    """Looks at one step at the moment at which it was recorded.

    Args:
        window: executes it.
        recorded: its record.
        trace: whether to trace its modules.
    """

    def __init__(self, window: Window, recorded: StepEntry, *, trace: bool) -> None:
        self.entry: StepEntry | None = None
        self.trace: StepTrace | None = None
        self._window = window
        self._recorded = recorded
        self._boundary: StepBoundary | None = None
        parts = window.program.parts
        self._alone = len(parts.optimizers) <= 1
        self._tracer = ModuleTrace(parts.model, window.fingerprinter.algorithm) if trace else None
        if self._tracer is not None:
            self._tracer.start()

    def listen(self) -> None:
        """Look when the optimizer has acted, after each of several: the last look counts."""
        self._boundary = StepBoundary(self._window.program.parts, self._acted)
        self._boundary.start()

    def take(self, facts: StepFacts) -> None:
        """Look now."""
        self.entry = self._window.seen(self._recorded, facts)
        self._end_trace()

    def end(self) -> None:
        """Let go of torch."""
        if self._boundary is not None:
            self._boundary.stop()
        self._end_trace()

    def _acted(self, loss: float | None) -> None:
        facts = StepFacts(step=self._recorded.step, loss=loss)
        self.entry = self._window.seen(self._recorded, facts)
        if self._alone:
            self._end_trace()

    def _end_trace(self) -> None:
        if self._tracer is not None:
            self.trace = self._tracer.stop()
            self._tracer = None


def part_in(recorded: StepEntry) -> tuple[int, int]:
    """Return which part of the state a record holds, and of how many."""
    for name in recorded.vectors:
        part, _, parts = name.partition("/")
        if part.isdecimal() and parts.isdecimal() and int(part) < int(parts) <= 1 << 16:
            return int(part), int(parts)
    return 0, 1


def _target(recorded: StepEntry) -> tuple[int, int] | None:
    """Epoch and position in the data after a step, as far as they were recorded."""
    epoch, _, position = recorded.digests.get("loader", "").partition(":")
    return (int(epoch), int(position)) if epoch.isdecimal() and position.isdecimal() else None

"""Executes recorded steps again from a checkpoint on, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from torch.optim import Optimizer

from nabla_core.errors import UsageError

from ..capturing.between import put_between_state
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

_MOST_SKIPPED = 64  # calls of step() in a row in which no optimizer acts


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
            self._feed = BatchFeed(
                parts.loader,
                place,
                self.segment,
                snapshot.records,
                between=lambda state: put_between_state(parts, state),
            )
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
        if not unrecorded:
            return self.restore(0)
        if self.program.parts.loader is not None:
            self._feed = BatchFeed(self.program.parts.loader, None, self.segment, 0)
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
            return self._take(steps[index].step, _target(steps[index]))
        returned: object = None
        for _ in range(_batches_of_last(steps)):
            returned = self._take(self.segment.coming, None)
        return returned

    # ------------------------------------------------------------------ private
    def _once(self, index: int, *, trace: bool) -> list[Executed]:
        """Call the program's step: one recorded step, or several if it lets its optimizer act more
        than once."""
        recorded = self.segment.steps[index]
        look = _Look(self, index, trace=trace)
        try:
            look.begin(within=self.segment.within)
            returned = self._take(recorded.step, _target(recorded))
            for _ in range(_MOST_SKIPPED if self.segment.within else 0):
                if look.entries or _target(recorded) is not None:
                    break  # the batches of a recorded place are all taken
                returned = self._take(recorded.step, None)  # a scaler skipped the step, or a try
            if not self.segment.within:
                look.take(facts_of(recorded.step, returned))
        finally:
            look.end()
        steps = self.segment.steps
        found = [
            Executed(index=index + turn, recorded=steps[index + turn], replayed=entry)
            for turn, entry in enumerate(look.entries)
        ]
        if not found:
            return [Executed(index=index, recorded=recorded, replayed=None, trace=look.trace)]
        return [replace(found[0], trace=look.trace), *found[1:]]

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
    """Looks at steps at the moment at which they were recorded.

    Args:
        window: executes them.
        index: of the first of them.
        trace: whether to trace its modules.
    """

    def __init__(self, window: Window, index: int, *, trace: bool) -> None:
        self.entries: list[StepEntry] = []
        self.trace: StepTrace | None = None
        self._window = window
        self._recorded = window.segment.steps[index:]
        self._boundary: StepBoundary | None = None
        parts = window.program.parts
        self._ending = _ending(window)
        self._is_ended = self._ending is not None or len(parts.optimizers) <= 1
        self._tracer = ModuleTrace(parts.model, window.fingerprinter.algorithm) if trace else None

    def begin(self, *, within: bool) -> None:
        """Take hold of torch; the trace lies on top of the instrument, and goes before it.

        Args:
            within: look when the optimizer has acted; of several without a known order, after each
                of them, and the last look counts.
        """
        if within:
            self._boundary = StepBoundary(self._window.program.parts, self._acted, self._ending)
            self._boundary.start()
        if self._tracer is not None:
            self._tracer.start()

    def take(self, facts: StepFacts) -> None:
        """Look now."""
        self.entries.append(self._window.seen(self._recorded[0], facts))
        self._end_trace()

    def end(self) -> None:
        """Let go of torch, the last that took hold first."""
        self._end_trace()
        if self._boundary is not None:
            self._boundary.stop()

    def _acted(self, loss: float | None) -> None:
        if not self._is_ended:
            self.entries.clear()
        if len(self.entries) >= len(self._recorded):
            return  # more than was recorded
        recorded = self._recorded[len(self.entries)]
        facts = StepFacts(step=recorded.step, loss=loss)
        self.entries.append(self._window.seen(recorded, facts))
        if self._is_ended:
            self._end_trace()

    def _end_trace(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            seen = tracer.stop()
            self.trace = None if tracer.spoilt else seen


def _ending(window: Window) -> Optimizer | None:
    """Return the optimizer after which the recorded steps were looked at, if that is known."""
    optimizers, index = window.program.parts.optimizers, window.segment.ends
    return optimizers[index] if index is not None and 0 <= index < len(optimizers) else None


def part_in(recorded: StepEntry) -> tuple[int, int]:
    """Return which part of the state a record holds, and of how many."""
    for name in recorded.vectors:
        part, _, parts = name.partition("/")
        if part.isdecimal() and parts.isdecimal() and int(part) < int(parts) <= 1 << 16:
            return int(part), int(parts)
    return 0, 1


def _batches_of_last(steps: Sequence[StepEntry]) -> int:
    """Return how many batches the last step took, as far as that was recorded."""
    places = [_target(step) for step in steps[-2:]]
    if len(places) < 2 or places[0] is None or places[1] is None or places[0][0] != places[1][0]:
        return 1
    return max(places[1][1] - places[0][1], 1)


def _target(recorded: StepEntry) -> tuple[int, int] | None:
    """Epoch and position in the data after a step, as far as they were recorded."""
    epoch, _, position = recorded.digests.get("loader", "").partition(":")
    return (int(epoch), int(position)) if epoch.isdecimal() and position.isdecimal() else None

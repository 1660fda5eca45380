"""Turns the steps of a program into records and checkpoints of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nabla_core.artifacts.strict_json import JsonObject

from ..codec.inline import pack
from ..fingerprints.fingerprinter import Fingerprinter
from ..store.brief_text import BriefEntry
from ..store.entries import EpochEntry, NoteEntry, StepEntry
from ..store.writer import RunWriter
from .between import between_state
from .brief import Anchor
from .carried import CarriedGradients
from .evaluations import Evaluations
from .generators import generator_state
from .held import HeldState
from .later import LaterCheckpoint, Moment
from .loaders import Iteration, LoaderBook
from .look import StepFacts, StepLook
from .notes import (
    EVALUATED_NOTE,
    PACE_NOTE,
    SETTINGS_NOTE,
    SKIPPED_NOTE,
    SNAPSHOT_NOTE,
    TRACE_NOTE,
    Within,
    between_notes,
    within_notes,
)
from .options import CaptureOptions
from .pace import Pace
from .parts import Parts
from .program_state import full_state
from .rates import Rates
from .saved_state import SavedState
from .settings import ModuleSettings
from .stopwatch import Stopwatch
from .tracing import StepTracing

__all__ = ["Recorder"]

_START_WAIT_S = 2.0


class Recorder:
    """Writes one rank's part of a run.

    Args:
        parts: the program.
        fingerprinter: hashes its tensors.
        writer: takes the records.
        pace: chooses how much is hashed per step.
        options: how to record it.
        book: knows where the program is in its data, if somebody has followed it so far.
    """

    def __init__(
        self,
        parts: Parts,
        fingerprinter: Fingerprinter,
        writer: RunWriter,
        pace: Pace,
        options: CaptureOptions,
        book: LoaderBook | None = None,
    ) -> None:
        self.parts = parts
        self.writer = writer
        self.book = book or LoaderBook(parts.loader)
        self.book.on_epoch = self._epoch_begins
        self.book.between = lambda: between_state(parts)
        self._carried = CarriedGradients(parts)
        self._evaluations = Evaluations(parts)
        self.count = 0
        self._written_s = self._drafted_s = 0.0
        self.last_step: int | None = None
        self._fingerprinter = fingerprinter
        self._pace = pace
        self._every = options.checkpoint_every
        self._look = StepLook(parts, fingerprinter)
        self._anchor = Anchor(fingerprinter)
        self._held = HeldState(parts, fingerprinter, options.budget, pace.whole_s)
        self._settings = ModuleSettings(parts, resumed=options.resume is not None)
        self._saved = SavedState(parts, writer.append)
        self._looks = 0
        self.briefs = 0
        """So many steps may be recorded in brief before the next one that is looked at."""
        self._is_new = True  # what follows a checkpoint or the start of an epoch is looked at
        self._watch = Stopwatch(parts, fingerprinter.clock)
        wanted = options.trace_modules
        self._tracing = StepTracing(parts, fingerprinter.algorithm, wanted=wanted)
        self._labels: set[int] = set()
        self._storable = True
        self._later = LaterCheckpoint(parts, self.moment, self.checkpoint)
        self._rates = Rates(parts.optimizers)

    def start(self, last_step: int | None = None, *, within_step: bool = False) -> None:
        """Take the first checkpoint and begin to follow the data.

        Args:
            last_step: step that the program has already taken, as far as that is known.
            within_step: the optimizer has just acted, and the rest of the step is still to come.
        """
        if last_step is not None and last_step >= 0:
            self.last_step = last_step
        self.book.start()
        self.book.settle_calls()
        self._watch.start()
        self._saved.start()
        if within_step:
            self._put_off(self.last_step or 0)
        elif self.checkpoint(self.last_step or 0):
            self.writer.flush(_START_WAIT_S)
        self._watch.resume(self._fingerprinter.clock())

    def draft(self, facts: StepFacts, *, is_end: bool = True) -> StepEntry:
        """Look at the program as it is after a step.

        Args:
            facts: what is known of it.
            is_end: whether the step is over; of several optimizers the last is not known at first.
        """
        begun_s = self._fingerprinter.clock()
        self._later.give_up()
        self._saved.step = None
        step_s = self._watch.lap(begun_s)
        if not is_end:
            self._tracing.drop()  # a replay would trace the whole step
        self._tracing.end()
        self._settle_new()
        self._note_others()
        part = self._looks % self._fingerprinter.parts
        self._looks += 1
        entry = self._look(facts, self._number(facts.step), part, self._place())
        self._drafted_s = self._fingerprinter.clock()
        cost_s = self._drafted_s - begun_s + self._written_s
        if self._pace.note(step_s, cost_s, self._fingerprinter.elapsed_s):
            self._change_pace()
        self.briefs = min(self._pace.every, self._every - (self.count + 1) % self._every) - 1
        rate = self._rates.news()
        return replace(entry, signals={**rate, **entry.signals}) if rate else entry

    def commit(self, entry: StepEntry, within: Within | None = None) -> None:
        """Write a step, and the checkpoint that is due after it.

        Args:
            entry: from :meth:`draft`.
            within: where the optimizer has just acted, and the rest of the step is still to come.
        """
        begun_s = self._drafted_s
        if within is not None:
            begun_s = self._fingerprinter.clock()  # it may have waited for another optimizer
            for note in within_notes(within, self.parts.optimizers, first=not self.count):
                self.writer.append(note)
        else:
            self._carried.note()
            self.book.carries = self._carried.changed
            for note in between_notes(*self._evaluations.settle()):
                self.writer.append(note)
            if self._watch.sees_calls:
                self._evaluations.wait()
        traced = self._tracing.take()
        if traced is not None:
            self.writer.append(NoteEntry(name=TRACE_NOTE, body=traced))
        self.writer.append(entry)
        self.count += 1
        self.last_step = entry.step
        ended_s = self._fingerprinter.clock()
        self._written_s = ended_s - begun_s
        if not self.count % self._every:
            if within is not None:
                self._put_off(entry.step)
            else:
                self.checkpoint(entry.step)
            ended_s = self._fingerprinter.clock()
        self._watch.resume(ended_s)

    def record_in_brief(
        self,
        step: int | None,
        loss: float | None,
        batch: tuple[int, ...] | str | None = None,
        signals: Mapping[str, float] | None = None,
        *,
        by_hand: bool,
    ) -> bool:
        """Record a step that is over in brief, if this is the turn of one; return whether it was.

        Args:
            step: its number, if the program counts.
            loss: its value.
            batch: indices of the samples, or a digest of them.
            signals: further numbers by name.
            by_hand: whether the whole step is over, and not only its optimizer.
        """
        book, calls = self.book, self._evaluations
        if not self.briefs or loss is None or book.is_strange or calls.seen != calls.usual:
            return False
        self.briefs -= 1
        begun_s = 0.0 if self.briefs else self._fingerprinter.clock()
        number = self._number(None) if step is None else step
        rate = self._rates.news()
        signals = {**rate, **(signals or {})} if rate else signals
        place = None if book.current is None else self._place()
        name, packed = self._anchor.name, self._anchor()
        facts = number, loss, batch, signals, place, name, packed
        self.writer.append(tuple.__new__(BriefEntry, facts))
        if place is not None:
            book.settle_calls()
            if by_hand:
                self._carried.note()
        if by_hand and self._watch.sees_calls:
            calls.wait()
        self.count += 1
        self.last_step = self._saved.step = number
        if not self.briefs:
            ended_s = self._fingerprinter.clock()
            self._pace.note_brief(ended_s - begun_s)
            self._watch.resume(ended_s)
        return True

    def checkpoint(self, label: int, moment: Moment | None = None) -> bool:
        """Take a checkpoint of now; return whether it was taken.

        Args:
            label: the last step that it contains.
            moment: generators and place in the data, where they have gone on since that step.

        Raises:
            UnsupportedStateError: a part of the state has no safe form.
        """
        if label in self._labels or not self._storable:
            return False
        moment = moment or self.moment()
        state = full_state(self.parts, moment.loader, moment.generators)
        state["after"] = {"records": self.count, "step": self.last_step}
        self._storable = False  # until the codec took it: what it refuses, it would refuse again
        taken = self.writer.checkpoint(label, state, taken=lambda: self._taken(label))
        self._storable = True
        return taken

    def close(self, reason: str) -> None:
        """Let go of torch and finish the run, whatever becomes of the checkpoint that waits."""
        try:
            self._saved.note()
            self._later.now()
        finally:
            self.stop_looking()
            self.writer.close(reason, self.last_step)

    def stop_looking(self) -> None:
        """Let go of torch."""
        self._later.give_up()
        self._watch.stop()
        self._saved.stop()
        self._evaluations.stop()
        self.book.stop()
        self._carried.forget()
        self._settings.let_go()
        self._tracing.drop()

    def moment(self) -> Moment:
        """Return what goes on first when a step is over: the data and what is drawn for it."""
        iteration = self.book.current
        return Moment(
            generators=generator_state(), loader=None if iteration is None else iteration.state()
        )

    # ------------------------------------------------------------------ private
    def _taken(self, label: int) -> None:
        self._labels.add(label)
        self.writer.append(
            NoteEntry(name=SNAPSHOT_NOTE, body={"step": label, "records": self.count})
        )
        self._begin_trace()

    def _put_off(self, label: int) -> None:
        self._later.put_off(label)
        self._begin_trace()  # the call that the checkpoint waits for is part of the traced step

    def _begin_trace(self) -> None:
        self._begins_anew()
        self._tracing.begin()

    def _number(self, given: int | None) -> int:
        if given is not None:
            return given
        return 0 if self.last_step is None else self.last_step + 1

    def _change_pace(self) -> None:
        self._fingerprinter.turn(self._pace.parts)
        body: JsonObject = {"parts": self._pace.parts, "every": self._pace.every}
        self.writer.append(NoteEntry(name=PACE_NOTE, body=body))

    def _place(self) -> str | None:
        iteration = self.book.settle()
        return None if iteration is None else f"{iteration.epoch}:{iteration.position}"

    def _begins_anew(self) -> None:
        """A replay may begin with the next step."""
        self._is_new, self.briefs = True, 0
        self._settings.wait()

    def _settle_new(self) -> None:
        if self._is_new:
            self._is_new = False
            note = self._settings.settle()
            if note is not None:
                self.writer.append(NoteEntry(name=SETTINGS_NOTE, body=note))

    def _note_others(self) -> None:
        """Say what happened beside the steps, as far as the data shows it."""
        passes, skipped = self.book.settle_calls()
        if passes:
            self.writer.append(NoteEntry(name=EVALUATED_NOTE, body={"calls": passes}))
        if skipped:
            self.writer.append(NoteEntry(name=SKIPPED_NOTE, body={"positions": [*skipped]}))

    def _epoch_begins(self, iteration: Iteration) -> None:
        self._begins_anew()
        held = {} if iteration.is_told_late else self._held.at_epoch()
        self.writer.append(
            EpochEntry(
                epoch=iteration.epoch,
                step=self._number(None),
                state=pack({"count": self.count, **held, **iteration.start}),
            )
        )

    def begin_by_hand(self, before: Iterable[NoteEntry]) -> None:
        """The first step that is recorded by hand is over; ``before`` is what lay before it."""
        self._tracing.end()
        self._rates.forget()  # a step was looked at when the optimizer acted, and is not written
        for note in before:
            self.writer.append(note)

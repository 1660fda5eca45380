"""Finds the first state that is bad: all checkpoints first, then one interval step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from nabla_core.errors import UsageError

from ..replaying.comparing import compare_step
from ..replaying.history import Segment, Snapshot
from ..replaying.program import Program
from ..replaying.tables import fingerprinter_for
from ..replaying.window import Window
from ..store.reader import RunReader
from .diagnosis import norms_of
from .predicates import StatePredicate, StateView

__all__ = ["StateSearch"]


@dataclass(slots=True)
class StateSearch:
    """One search over the states of a segment.

    Attributes:
        reader: of the run.
        segment: whose steps are searched.
        predicate: says whether a state is bad.
        program: executes steps between two checkpoints, if one was given.
        answers: for each checkpoint, in order, whether it is bad.
        probes: how often the predicate was asked.
        replayed: steps that were executed again.
        diverged: step in which the replay differed from the record.
        norms: at the last good and at the first bad step of a replay.
    """

    reader: RunReader
    segment: Segment
    predicate: StatePredicate
    program: Program | None = None
    rank: int = 0
    answers: list[tuple[Snapshot, bool]] = field(default_factory=list)
    probes: int = 0
    replayed: int = 0
    diverged: int | None = None
    norms: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})

    def probe_checkpoints(self) -> None:
        """Ask about every checkpoint: what goes good again must not mislead the search."""
        for snapshot in self.segment.snapshots:
            self.answers.append((snapshot, self._ask_snapshot(snapshot)))

    @property
    def flips(self) -> list[int]:
        """Indices of answers that differ from the one before."""
        return [
            index
            for index in range(1, len(self.answers))
            if self.answers[index][1] != self.answers[index - 1][1]
        ]

    def bracket(self) -> tuple[int, int] | None:
        """Return the step indices between which the first bad one lies: steps from the first on
        to before the second were taken between a good checkpoint and a bad one, or the end."""
        bad = next((index for index, (_, is_bad) in enumerate(self.answers) if is_bad), None)
        if not self.answers or bad == 0:
            return None
        if bad is None:
            return self.answers[-1][0].records, len(self.segment.steps)
        return self.answers[bad - 1][0].records, self.answers[bad][0].records

    def walk(self, first: int, end: int) -> int | None:
        """Execute the steps of a bracket; return the index of the first whose state is bad."""
        if self.program is None or first >= end:
            return None
        fingerprinter = fingerprinter_for(self.reader, self.program, self.rank, self.segment.number)
        window = Window(self.reader, self.segment, self.program, fingerprinter)
        start = window.restore(first)
        before: Mapping[str, float] = {}
        for one in window.run(start, end - 1, lambda _: False):
            self.replayed += 1
            if one.recorded is None or one.replayed is None:
                continue
            result = compare_step(one.recorded, one.replayed, fingerprinter, self.segment.number)
            if result.status == "DIVERGENCE":
                self.diverged = one.recorded.step
                return None
            now = norms_of(self.program.parts)
            if self._ask(self._live_view(one.index)):
                self.norms = (before, now)
                return one.index
            before = now
        return None

    # ------------------------------------------------------------------ private
    def _ask_snapshot(self, snapshot: Snapshot) -> bool:
        step = self.segment.steps[snapshot.records - 1].step if snapshot.records else None
        entry = self.segment.steps[snapshot.records - 1] if snapshot.records else None
        metrics = {} if entry is None else dict(entry.signals)
        if entry is not None and entry.loss is not None:
            metrics["loss"] = entry.loss
        if self.program is None:
            state = cast("Mapping[str, object]", self.reader.load(snapshot.checkpoint))
            return self._ask(StateView(step=step, state=state, metrics=metrics))
        fingerprinter = fingerprinter_for(self.reader, self.program, self.rank, self.segment.number)
        Window(self.reader, self.segment, self.program, fingerprinter).restore(snapshot.records)
        return self._ask(self._view(step, metrics))

    def _live_view(self, index: int) -> StateView:
        entry = self.segment.steps[index]
        metrics = dict(entry.signals)
        if entry.loss is not None:
            metrics["loss"] = entry.loss
        return self._view(entry.step, metrics)

    def _view(self, step: int | None, metrics: Mapping[str, float]) -> StateView:
        parts = cast("Program", self.program).parts
        state: dict[str, object] = {"model": parts.model.state_dict()}
        return StateView(step=step, state=state, parts=parts, metrics=metrics)

    def _ask(self, view: StateView) -> bool:
        self.probes += 1
        answer = self.predicate(view)
        if isinstance(answer, (str, bytes)) or answer is None or not hasattr(answer, "__bool__"):
            raise UsageError(
                f"bisect: the predicate returned {type(answer).__name__}: needs True (bad) or False"
            )
        return bool(answer)

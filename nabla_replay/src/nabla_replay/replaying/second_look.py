"""Judges a difference: another program, or state of its own that no checkpoint holds?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from ..capturing.digests import state_digest
from ..capturing.program_state import full_state
from ..errors import RecordError
from ..store.entries import StepEntry
from .comparing import StepResult, compare_step
from .counters import Counter, counters_in, held_by
from .drawing import words_to
from .guessing import first_difference
from .habits import Habits, takes_ahead
from .history import Segment, segments_of
from .own_state import changed_names
from .placing import place_of
from .reasons import AT_RESUME, MANY_DRAWS, TAKEN_AHEAD, Reasons, epoch_reason, own_state_reason
from .result import Divergence
from .stage import Stage
from .window import Window

__all__ = ["SecondLook"]

_FAR = 10  # a second try from the beginning executes at most so many times the steps asked for
_NEAR_STEPS = 2000  # ... or so many
_MOST_DRAWS = 16  # steps: each is found by executing what lies before it once more
_HIGH = (1_000, 1_000_000)  # steps: a program may change what it does after so many

Bits = tuple[str, Mapping[str, str], Mapping[str, bytes]]
"""Loss, digests and fingerprints of one executed step."""


@dataclass(slots=True)
class SecondLook:
    """Executes steps that differed again, with programs made anew.

    Attributes:
        stage: where the run is replayed.
        reasons: told where modules cannot be compared.
        habits: what the recorded loop did around its steps.
        differs_at: index of the first step that differed when all was executed from the beginning.
    """

    stage: Stage
    reasons: Reasons
    habits: Habits
    differs_at: int | None = None
    _is_decided: bool = False

    def from_beginning(self, segment: Segment, first: int, last: int) -> list[StepResult] | None:
        """Execute a program made anew from its first step on; return the steps from ``first`` on
        if all match."""
        near = last <= max(_NEAR_STEPS, _FAR * (last - first + 1))
        if not self.stage.builds or not near:
            return None
        window = self._window(segment, replace(self.habits, counters=()))
        found: list[StepResult] = []
        try:
            for one in window.run(window.start_over(), last, self.stage.traces_of(segment)):
                if one.recorded is None or one.replayed is None:
                    return None
                made, unasked = window.fingerprinter, self.stage.unasked
                result = compare_step(one.recorded, one.replayed, made, segment.number, unasked)
                if (
                    result.status != "MATCH"
                    or place_of(window, one, result, self.reasons) is not None
                ):
                    self.differs_at = one.index
                    self._is_decided = not (segment.evaluated or segment.loaded or segment.gaps)
                    return None
                found.append(result)
        except RecordError:
            return None
        return found[first:]

    def better(self, segment: Segment, first: int, index: int) -> Habits | None:
        """Return habits with which the step at ``index`` matches, if there are."""
        return self.counted(segment, first, index) or self.drawn(segment, first, index)

    def counted(self, segment: Segment, first: int, index: int) -> Habits | None:
        """Return habits with which the step at ``index`` matches, because the program's counters
        are put to where they were; ``None`` if that does not help."""
        if not self.stage.builds:
            return None
        known = self.habits.counters or self._counters(segment, first, index)
        for offset in _offsets(segment) if known else ():
            guess = replace(self.habits, counters=known, counted_before=offset)
            if guess == self.habits:
                continue
            if first_difference(self._window(segment, guess), first, index) == "":
                return guess
        return None

    def drawn(self, segment: Segment, first: int, index: int) -> Habits | None:
        """Return habits with which the step at ``index`` matches, because numbers are drawn before
        it as the recorded loop drew them; ``None`` if that does not help."""
        recorded = segment.steps[index].digests.get("rng")
        if recorded is None or not self.stage.builds or len(self.habits.draws) >= _MOST_DRAWS:
            return None
        if _executed(self._window(segment, self.habits), first, index) is None:
            return None
        words = words_to(recorded)
        guess = replace(self.habits, draws=(*self.habits.draws, (index, words)))
        fits = words and first_difference(self._window(segment, guess), first, index) == ""
        return guess if fits else None

    def outside(self, segment: Segment, found: Divergence, start: int) -> str | None:
        """Return the reason where what differs need not be the program that steps."""
        at_once = found.step == segment.steps[start].step
        if at_once and self.habits.uses == "taken" and takes_ahead(segment):
            return TAKEN_AHEAD
        differs = found.step
        if at_once and self.differs_at is not None:
            differs = segment.steps[self.differs_at].step
        if segment.begins_epoch(differs) and not (at_once and self.differs_at is None):
            return epoch_reason(differs)
        if at_once and segment.number and not self.differs_at:
            segments = segments_of(self.stage.reader.log(self.stage.options.rank))
            earlier = [one for one in segments if one.number < segment.number]
            return AT_RESUME if self._knows(earlier) else None
        return MANY_DRAWS if len(self.habits.draws) >= _MOST_DRAWS else None

    def own_state(self, segment: Segment, first: int, index: int) -> str | None:
        """Return the reason where the steps depend on what the program has executed before.

        The same program is put back to the same checkpoint and executes the same steps twice. Where
        that gives other bits, state that is no part of the checkpoint decides them. A number that
        decides only once it is high is found by setting it so.
        """
        if not self.stage.builds or self._has_begun_alike(segment):
            return None
        window = self._window(segment, self.habits)
        before = held_by(window.program)
        once = _bits(window, first, index)
        names = changed_names(before, held_by(window.program))
        if once is None:
            return None
        if once != _bits(window, first, index):
            fresh = _bits(self._window(segment, self.habits), first, index)
            return own_state_reason(names, repeats=fresh == once)
        known = self.habits.counters or self._counters(segment, first, index)
        for offset in _HIGH if known else ():
            guess = replace(self.habits, counters=known, counted_before=offset)
            if once != _bits(self._window(segment, guess), first, index):
                return own_state_reason([one.path for one in known], repeats=True)
        return None

    def _counters(self, segment: Segment, first: int, index: int) -> tuple[Counter, ...]:
        window = self._window(segment, self.habits)
        before = held_by(window.program)
        start = _executed(window, first, index)
        if start is None:
            return ()
        return counters_in(before, held_by(window.program), index - start + 1)

    # ------------------------------------------------------------------ private
    def _window(self, segment: Segment, habits: Habits) -> Window:
        return self.stage.window(segment, self.stage.anew(), habits)

    def _knows(self, segments: Sequence[Segment]) -> bool:
        """Whether the program gives the first recorded step of one of these segments."""
        for segment in segments:
            window = self._window(segment, Habits())
            if segment.steps and first_difference(window, 0, 0) == "":
                return True
        return False

    def _has_begun_alike(self, segment: Segment) -> bool:
        """Whether all that the program held was as ``build`` makes it when the records began: then
        what was executed from there on has judged it."""
        snapshot = next((one for one in segment.snapshots if not one.records), None)
        if not self._is_decided or snapshot is None or segment.number:
            return False
        window = self._window(segment, self.habits)
        try:
            if segment.unrecorded:
                window.start_over()
            recorded = self.stage.reader.load(snapshot.checkpoint)
        except RecordError:
            return False
        here = full_state(window.program.parts, None)
        return _held_at_first(here) == _held_at_first(cast("Mapping[str, object]", recorded))


def _held_at_first(state: Mapping[str, object]) -> tuple[int, int]:
    """Digest weights and moments; other rates or momenta make another program."""
    optimizers = cast("list[Mapping[str, object]]", state["optimizer"])
    return state_digest(state["model"]), state_digest([one.get("state") for one in optimizers])


def _executed(window: Window, first: int, index: int) -> int | None:
    """Execute up to a step, and return the index of the first; ``None`` if the program raises."""
    try:
        start = window.restore(first)
        for _ in window.run(start, index, lambda _: False):
            pass
    except Exception:  # what differs may have led the program to where it cannot go on
        return None
    return start


def _bits(window: Window, first: int, index: int) -> list[Bits | None] | None:
    """Execute up to a step; return what each gave, ``None`` if the program raises."""
    try:
        executed = window.run(window.restore(first), index, lambda _: False)
        return list(_each(one.replayed for one in executed))
    except Exception:  # a stream of its own may have ended: another outcome
        return None


def _each(entries: Iterable[StepEntry | None]) -> Iterator[Bits | None]:
    for one in entries:
        yield None if one is None else (repr(one.loss), one.digests, one.vectors)


def _offsets(segment: Segment) -> tuple[int, ...]:
    """How many steps a program may have counted when the segment began."""
    number = segment.steps[0].step
    wanted = (segment.unrecorded, number, number - 1, number + 1)
    return tuple(dict.fromkeys(one for one in wanted if one >= 0))

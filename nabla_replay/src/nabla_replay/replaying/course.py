"""One replay while it goes on: executes the steps that were asked for, and judges each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..capturing.between import ProgramChanged
from ..environment.comparing import Difference, differences
from ..environment.gathering import gather_settings
from ..errors import RecordError
from .comparing import StepResult, compare_step
from .drawing import Draws
from .feed import DataEnded
from .guessing import IDLE, better_habits, first_difference
from .habits import Habits
from .history import Segment, Snapshot, segments_of
from .localizing import ModulePlace
from .placing import place_between, place_of, since_when
from .program import Program
from .reasons import AT_ONCE, STALE_EXTRA, Reasons, keeps_workers
from .result import Divergence, ReplayResult
from .second_look import SecondLook
from .spans import spans
from .stage import Stage
from .verdicts import counters_issue, draws_issue, from_beginning_issue, rates_issue, replay_issues
from .window import Executed, Window

__all__ = ["Course"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocked:
    """A step that cannot be compared, for a reason that lies before it.

    Attributes:
        index: of the step.
        is_idle: whether the replayed program took no step of its optimizer.
        is_evaluated: whether the recorded one had evaluated before it, and drawn random numbers.
    """

    index: int
    is_idle: bool = False
    is_evaluated: bool = False


@dataclass(slots=True)
class Course:
    """One replay.

    Attributes:
        stage: the run, what was asked for, and the program.
        steps: what was compared.
        missing: components that the program lacks.
        reasons: what stands in the way of exactness.
        done: steps compared so far.
        restarted: checkpoint from which steps did not match, while they do from the beginning on.
        habits: what the recorded loop did around its steps, as far as it was found out.
        counted: numbers of the program's own that were set.
        drawn: by step, what was drawn from the global generators before it.
        is_elsewhere: whether settings differ that break exactness.
        has_ended: whether the loader gave fewer batches than were recorded.
    """

    stage: Stage
    steps: list[StepResult] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    reasons: Reasons = field(default_factory=Reasons)
    done: int = 0
    restarted: int | None = None
    habits: Habits = field(default_factory=Habits)
    counted: dict[str, None] = field(default_factory=dict)
    drawn: dict[int, Draws] = field(default_factory=dict)
    is_elsewhere: bool = False
    has_ended: bool = False

    def run(self) -> ReplayResult:
        """Execute and compare, up to the first difference.

        Raises:
            UsageError: the program does not fit the run.
            RecordError: nothing of what was asked for was recorded.
            CheckpointError: the checkpoint to start from is damaged.
        """
        options, reader = self.stage.options, self.stage.reader
        segments = segments_of(reader.log(options.rank))
        chosen = spans(segments, options.from_step, options.to_step)
        planned = sum(last - first + 1 for _, first, last in chosen)
        environment: tuple[Difference, ...] = ()
        found: Divergence | None = None
        for segment, first, last in chosen:
            self.habits = replace(self.habits, counters=(), counted_before=0, draws=())
            window = self._window(segment)  # each was recorded by a process of its own
            environment = environment or _environment(segment, window.program)
            self.is_elsewhere = any(one.breaks for one in environment)
            found = self._span(window, (first, last, planned))
            if found is not None:
                break
        return self._result(found, environment, planned)

    def _result(
        self, found: Divergence | None, environment: tuple[Difference, ...], planned: int
    ) -> ReplayResult:
        if found is None:  # nobody said that it matters, and it did not
            unasked = {f"extra {name}" for name in self.stage.unasked}
            self.missing = tuple(name for name in self.missing if name not in unasked)
        reasons = (*(f"no {name} to restore" for name in self.missing), *self.reasons.told)
        issues = list(replay_issues(tuple(self.steps), found, environment, reasons))
        if self.restarted is not None:
            issues.append(from_beginning_issue(self.restarted))
        if self.habits.rates != "step":
            issues.append(rates_issue(self.habits.rates))
        if self.counted:
            issues.append(counters_issue(tuple(self.counted)))
        if self.drawn:
            issues.append(draws_issue(self.drawn))
        return ReplayResult(
            run=self.stage.reader.folder,
            issues=tuple(issues),
            steps=tuple(self.steps),
            divergence=found,
            environment=environment,
            missing=self.missing,
            cautions=self.reasons.told,
            planned=planned,
        )

    def _span(self, window: Window, places: tuple[int, int, int]) -> Divergence | None:
        """Compare steps up to the first difference, or to the last.

        Behind a step that cannot be compared, the next checkpoint is a new beginning.
        """
        first, last, planned = places
        again: Snapshot | None = None
        while True:
            try:
                start = window.restore(first)
            except RecordError as error:
                if again is None:
                    raise
                self.reasons.add(str(error))  # the program had become another one
                return None
            self.missing = tuple(dict.fromkeys((*self.missing, *window.missing)))
            found = self._judged(window, (start, first, last), planned)
            if isinstance(found, Habits):
                window = self._window(window.segment)
                continue
            if not isinstance(found, _Blocked):
                return found
            if found.is_idle:
                self.reasons.idle.append(window.segment.steps[found.index].step)
            elif found.is_evaluated:
                self.reasons.evaluated.append(window.segment.steps[found.index].step)
            again = window.segment.snapshot_after(found.index)
            if again is None or again.records > last:
                return None
            first = again.records
            if self.habits.from_empty:  # it may be executed from its beginning
                window = self._window(window.segment)

    def _judged(
        self, window: Window, places: tuple[int, int, int], planned: int
    ) -> Divergence | _Blocked | Habits | None:
        """Compare steps; return what ended that, or the habits with which they are tried again."""
        start, first, _ = places
        kept = len(self.steps), self.done
        found = self._stretch(window, places, planned)
        better: Divergence | Habits | None = self._better(window, found, first, start)
        if isinstance(found, _Blocked) and found.is_evaluated:
            look = SecondLook(self.stage, self.reasons, self.habits)
            better = look.drawn(window.segment, first, found.index)
        if better is None:
            if not isinstance(found, Divergence):
                return found
            better = self._second_look(window, found, places, kept)
        if isinstance(better, Habits):
            self.habits = better
            self.counted.update(dict.fromkeys(one.path for one in better.counters))
            steps = window.segment.steps
            self.drawn.update((steps[index].step, words) for index, words in better.draws)
            del self.steps[kept[0] :]
            self.done = kept[1]
        return better

    def _better(
        self, window: Window, found: Divergence | _Blocked | None, first: int, start: int
    ) -> Habits | None:
        """Return habits of the recorded loop with which the steps go on farther, if there are."""
        segment = window.segment
        if isinstance(found, Divergence):
            index = segment.index_of(found.step, start)
            component = found.component
        elif found is not None and found.is_idle:
            index, component = found.index, IDLE
        else:
            return None
        lacks = set(self.missing) - {"loader"}
        if index is None or (lacks and self.habits.uses != "taken"):
            return None

        def tried(habits: Habits) -> str | None:
            if lacks and habits.rates != "step":
                return None  # a schedule that is missing is told as that
            if habits.from_empty and not self.stage.builds:
                return None
            again = self._window(segment, habits)
            return first_difference(again, first, index)

        return better_habits(self.habits, segment, (index, component), tried)

    def _stretch(
        self, window: Window, places: tuple[int, int, int], planned: int
    ) -> Divergence | _Blocked | None:
        """Execute steps from ``start``, a checkpoint, to ``last``; compare from ``first`` on."""
        start, first, last = places
        executed = window.run(start, last, self.stage.traces_of(window.segment))
        index = start
        try:
            for one in executed:
                index = one.index
                found = self._compare(window, one, compared=one.index >= first)
                if self.stage.options.progress is not None:
                    self.stage.options.progress(self.done, planned)
                if found is not None:
                    return found
        except ProgramChanged as error:
            self.reasons.add(str(error))
            return _Blocked(index=index + 1)
        except DataEnded as error:
            step = window.segment.steps[min(index + 1, last)].step
            self.reasons.add(str(error))
            self.has_ended = True
            return Divergence(step=step, component="loader")
        return None

    @property
    def _lacks_a_part(self) -> bool:
        """Whether something that steps was not put back: then it is not hidden."""
        return any(not name.startswith("extra ") for name in self.missing)

    def _second_look(
        self,
        window: Window,
        found: Divergence,
        places: tuple[int, int, int],
        kept: tuple[int, int],
    ) -> Divergence | Habits | None:
        """Judge a difference: does the program hold state that no checkpoint holds?

        Args:
            window: in which it was found.
            found: the difference.
            places: index after the checkpoint, first and last index that were asked for.
            kept: how many results there were before.

        Returns:
            The difference if it stays one; habits to try again with; else nothing.
        """
        start, first, last = places
        segment = window.segment
        carried = keeps_workers(segment, start)
        if self.has_ended and not carried:
            return found
        look = SecondLook(self.stage, self.reasons, self.habits)
        index = segment.index_of(found.step, start)
        # where settings break exactness, a difference says nothing about the program
        asked = None if self.is_elsewhere else index
        better = None if asked is None else look.better(segment, first, asked)
        if better is not None:
            return better
        matching = look.from_beginning(segment, first, last)
        if matching is not None:
            self.steps[kept[0] :] = matching
            self.done = kept[1] + len(matching)
            self.restarted = segment.steps[start - 1].step if start else found.step - 1
            return None
        if carried:
            self.reasons.add_workers()
            del self.steps[kept[0] :]
            return None
        hidden = None if self._lacks_a_part else asked
        reason = None if hidden is None else look.own_state(segment, first, hidden)
        reason = reason or (None if self.is_elsewhere else look.outside(segment, found, start))
        if reason is not None:
            self.reasons.add(reason)
            self.steps[kept[0] :] = [one for one in self.steps[kept[0] :] if one.first is None]
            return None
        at_once = found.step == segment.steps[start].step
        if at_once and (start or segment.unrecorded or segment.number):
            self.reasons.add(AT_ONCE)
        return found

    def _compare(
        self, window: Window, one: Executed, *, compared: bool
    ) -> Divergence | _Blocked | None:
        if one.recorded is None:
            return None
        if one.replayed is None:
            # one of them has moved its weights, the other has not
            return _Blocked(index=one.index, is_idle=True)
        segment = window.segment
        result = compare_step(
            one.recorded, one.replayed, window.fingerprinter, segment.number, self.stage.unasked
        )
        if result.differs_in_extra_only:
            window.has_stale_extra |= segment.begins_epoch(one.recorded.step)
        if window.has_stale_extra and result.diverging_extra:
            self.reasons.add(STALE_EXTRA)
            result = result.without_extra()
        others = segment.evaluated.get(one.index, 0) - one.evaluations
        if others > 0 and result.drew_otherwise:
            return _Blocked(index=one.index, is_evaluated=True)
        if one.index in segment.loaded and result.first is not None:
            self.reasons.loaded.append(one.recorded.step)
            return _Blocked(index=one.index)
        place = place_of(window, one, result, self.reasons)
        if compared or result.first is not None:
            self.steps.append(result)
        self.done += compared
        first = result.first
        if first is None and place is None:
            return None
        if place is None and self.stage.options.localize:
            place = self._place_by_reference(window, one.index)
        component = "modules" if first is None else first.component
        return Divergence(
            step=one.recorded.step,
            component=component,
            names=() if first is None else first.names,
            since=since_when(window, one.index, component),
            place=place,
        )

    # ------------------------------------------------------------------ modules
    def _place_by_reference(self, window: Window, index: int) -> ModulePlace | None:
        """Execute a step twice, with the right program and with this one, and compare them."""
        reference = self.stage.options.reference
        if reference is None:
            return None
        # made anew: what it has counted so far must not count
        right = self.stage.window(window.segment, self.stage.anew(reference), self.habits)
        return place_between(right, self._window(window.segment), index)

    def _window(self, segment: Segment, habits: Habits | None = None) -> Window:
        return self.stage.window(segment, self.stage.anew(), habits or self.habits)


def _environment(segment: Segment, program: Program) -> tuple[Difference, ...]:
    now = gather_settings(program.parts.model, program.parts.loader)
    return differences(dict(segment.environment), now)

"""One replay while it goes on: executes the steps that were asked for, and judges each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..capturing.between import ProgramChanged
from ..capturing.owners import FOUND
from ..environment.comparing import Difference, differences
from ..environment.gathering import gather_settings
from ..errors import RecordError
from ..store.reader import RunReader
from .comparing import StepResult, compare_step
from .feed import DataEnded
from .fitting import fitted
from .guessing import IDLE, better_habits, first_difference
from .habits import Habits, takes_ahead
from .history import Segment, Snapshot, segments_of
from .localizing import ModulePlace
from .options import ReplayOptions
from .placing import place_between, place_of, since_when
from .program import Program, program_of
from .reasons import AT_EPOCH, AT_ONCE, STALE_EXTRA, TAKEN_AHEAD, Reasons, keeps_workers
from .result import Divergence, ReplayResult
from .spans import spans
from .tables import fingerprinter_for
from .verdicts import from_beginning_issue, rates_issue, replay_issues
from .window import Executed, Window

__all__ = ["Course"]

_FAR = 10  # a second try from the beginning executes at most so many times the steps asked for
_NEAR_STEPS = 2000  # ... or so many


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocked:
    """A step that cannot be compared, for a reason that lies before it.

    Attributes:
        index: of the step.
        is_idle: whether the replayed program took no step of its optimizer.
    """

    index: int
    is_idle: bool = False


@dataclass(slots=True)
class Course:
    """One replay.

    Attributes:
        reader: of the run.
        options: what was asked for.
        given: the program, as it was given.
        steps: what was compared.
        missing: components that the program lacks.
        reasons: what stands in the way of exactness.
        done: steps compared so far.
        restarted: checkpoint from which steps did not match, while they do from the beginning on.
        habits: what the recorded loop did around its steps, as far as it was found out.
    """

    reader: RunReader
    options: ReplayOptions
    given: Mapping[str, object]
    steps: list[StepResult] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    reasons: Reasons = field(default_factory=Reasons)
    done: int = 0
    restarted: int | None = None
    habits: Habits = field(default_factory=Habits)

    def run(self) -> ReplayResult:
        """Execute and compare, up to the first difference.

        Raises:
            UsageError: the program does not fit the run.
            RecordError: nothing of what was asked for was recorded.
            CheckpointError: the checkpoint to start from is damaged.
        """
        segments = segments_of(self.reader.log(self.options.rank))
        chosen = spans(segments, self.options.from_step, self.options.to_step)
        planned = sum(last - first + 1 for _, first, last in chosen)
        environment: tuple[Difference, ...] = ()
        found: Divergence | None = None
        for segment, first, last in chosen:
            program = self._anew(self.given)  # each was recorded by a process of its own
            environment = environment or _environment(segment, program)
            window = self._window(segment, program)
            found = self._span(window, (first, last, planned))
            if found is not None:
                break
        return self._result(found, environment, planned)

    def _result(
        self, found: Divergence | None, environment: tuple[Difference, ...], planned: int
    ) -> ReplayResult:
        if found is None:  # nobody said that it matters, and it did not
            unasked = {f"extra {name}" for name in self._unasked}
            self.missing = tuple(name for name in self.missing if name not in unasked)
        reasons = (*(f"no {name} to restore" for name in self.missing), *self.reasons.told)
        issues = list(replay_issues(tuple(self.steps), found, environment, reasons))
        if self.restarted is not None:
            issues.append(from_beginning_issue(self.restarted))
        if self.habits.rates != "step":
            issues.append(rates_issue(self.habits.rates))
        return ReplayResult(
            run=self.reader.folder,
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
            kept = len(self.steps), self.done
            try:
                start = window.restore(first)
            except RecordError as error:
                if again is None:
                    raise
                self.reasons.add(str(error))  # the program had become another one
                return None
            self.missing = tuple(dict.fromkeys((*self.missing, *window.missing)))
            found = self._stretch(window, (start, first, last), planned)
            better = self._better(window, found, first, start)
            if better is not None:
                self.habits = better
                del self.steps[kept[0] :]
                self.done = kept[1]
                window = self._window(window.segment, self._anew(self.given))
                continue
            if isinstance(found, Divergence):
                return self._second_look(window, found, (start, first, last), kept)
            if found is None:
                return None
            if found.is_idle:
                self.reasons.idle.append(window.segment.steps[found.index].step)
            again = window.segment.snapshot_after(found.index)
            if again is None or again.records > last:
                return None
            first = again.records
            if self.habits.from_empty:  # it may be executed from its beginning
                window = self._window(window.segment, self._anew(self.given))

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
            if habits.from_empty and self.given.get("build") is None:
                return None
            again = self._window(segment, self._anew(self.given), habits)
            return first_difference(again, first, index)

        return better_habits(self.habits, segment, (index, component), tried)

    def _stretch(
        self, window: Window, places: tuple[int, int, int], planned: int
    ) -> Divergence | _Blocked | None:
        """Execute steps from ``start``, a checkpoint, to ``last``; compare from ``first`` on."""
        start, first, last = places
        executed = window.run(start, last, self._traces_of(window.segment))
        index = start
        try:
            for one in executed:
                index = one.index
                found = self._compare(window, one, compared=one.index >= first)
                if self.options.progress is not None:
                    self.options.progress(self.done, planned)
                if found is not None:
                    return found
        except ProgramChanged as error:
            self.reasons.add(str(error))
            return _Blocked(index=index + 1)
        except DataEnded as error:
            step = window.segment.steps[min(index + 1, last)].step
            self.reasons.add(str(error))
            return Divergence(step=step, component="loader")
        return None

    def _second_look(
        self,
        window: Window,
        found: Divergence,
        places: tuple[int, int, int],
        kept: tuple[int, int],
    ) -> Divergence | None:
        """Judge a difference: does the program hold state that no checkpoint holds?

        A counter of its own may show many steps after the checkpoint that does not hold it.

        Args:
            window: in which it was found.
            found: the difference.
            places: index after the checkpoint, first and last index that were asked for.
            kept: how many results there were before.
        """
        start, first, last = places
        segment = window.segment
        carried = keeps_workers(segment, start)
        if found.component == "loader" and not carried:
            return found
        matching = self._from_beginning(segment, first, last)
        if matching is not None:
            self.steps[kept[0] :] = matching
            self.done = kept[1] + len(matching)
            self.restarted = segment.steps[start - 1].step if start else found.step - 1
            return None
        if carried:
            self.reasons.add_workers()
            del self.steps[kept[0] :]
            return None
        at_once = found.step == segment.steps[start].step
        if at_once and self.habits.uses == "taken" and takes_ahead(segment):
            self.reasons.add(TAKEN_AHEAD)
            del self.steps[kept[0] :]
            return None
        if at_once and (start or segment.unrecorded or segment.number):
            self.reasons.add(AT_ONCE)
        elif segment.begins_epoch(found.step):
            self.reasons.add(AT_EPOCH)
        return found

    def _from_beginning(self, segment: Segment, first: int, last: int) -> list[StepResult] | None:
        """Execute a program made anew from its first step on; return the steps from ``first`` on
        if all match."""
        build = self.given.get("build")
        near = last <= max(_NEAR_STEPS, _FAR * (last - first + 1))
        if build is None or not near:
            return None
        window = self._window(segment, self._anew(self.given))
        found: list[StepResult] = []
        try:
            for one in window.run(window.start_over(), last, self._traces_of(segment)):
                if one.recorded is None or one.replayed is None:
                    return None
                made = window.fingerprinter
                result = compare_step(
                    one.recorded, one.replayed, made, segment.number, self._unasked
                )
                if (
                    result.status != "MATCH"
                    or place_of(window, one, result, self.reasons) is not None
                ):
                    return None
                found.append(result)
        except RecordError:
            return None
        return found[first:]

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
            one.recorded, one.replayed, window.fingerprinter, segment.number, self._unasked
        )
        if window.has_stale_extra and result.diverging_extra:
            self.reasons.add(STALE_EXTRA)
            result = result.without_extra()
        others = segment.evaluated.get(one.index, 0) - one.evaluations
        if others > 0 and result.drew_otherwise:
            self.reasons.evaluated.append(one.recorded.step)
            return _Blocked(index=one.index)
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
        if place is None and self.options.localize:
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
    def _traces_of(self, segment: Segment) -> Callable[[int], bool]:
        """Whether the modules of a step are to be compared."""
        return (segment.traces if self.options.localize else {}).__contains__

    def _place_by_reference(self, window: Window, index: int) -> ModulePlace | None:
        """Execute a step twice, with the right program and with this one, and compare them."""
        if self.options.reference is None:
            return None
        # made anew: what it has counted so far must not count
        right, mine = self._anew({"build": self.options.reference}), self._anew(self.given)
        return place_between(
            self._window(window.segment, right), self._window(window.segment, mine), index
        )

    @property
    def _unasked(self) -> frozenset[str]:
        """Extra state that the capture found by itself."""
        names = self.reader.header.policy.get(FOUND)
        return frozenset(map(str, names)) if isinstance(names, list) else frozenset()

    def _anew(self, given: Mapping[str, object]) -> Program:
        return fitted(program_of(given), self.reader, self.options.rank)

    def _window(self, segment: Segment, program: Program, habits: Habits | None = None) -> Window:
        found = fingerprinter_for(self.reader, program, self.options.rank, segment.number)
        return Window(self.reader, segment, program, found, habits or self.habits)


def _environment(segment: Segment, program: Program) -> tuple[Difference, ...]:
    now = gather_settings(program.parts.model, program.parts.loader)
    return differences(dict(segment.environment), now)

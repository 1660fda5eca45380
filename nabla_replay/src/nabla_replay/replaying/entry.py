"""``nabla.replay``: execute recorded steps again and compare them bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack, cast

from ..environment.comparing import Difference, differences
from ..environment.gathering import gather_settings
from ..errors import RecordError
from ..fingerprints.call_record import StepTrace, shortened, unpack_trace
from ..store.reader import RunReader
from .comparing import StepResult, compare_step
from .feed import DataEnded
from .history import Segment, segments_of
from .localizing import ModulePlace, locate
from .options import ReplayArguments, ReplayOptions, program_arguments, replay_options
from .program import Program, program_of
from .result import Divergence, ReplayResult
from .tables import fingerprinter_for
from .verdicts import replay_issues
from .window import Executed, Window

__all__ = ["replay", "spans"]


def replay(run: str | Path, **arguments: Unpack[ReplayArguments]) -> ReplayResult:
    """Execute recorded steps again from the nearest checkpoint, and compare each bit by bit.

    The recorded environment is compared first: where it breaks bit-exactness, that is said, and a
    difference is not blamed on the run. State, random generators and the place in the data are
    restored; the data comes from ``loader``.

    Args:
        run: folder of the run.
        **arguments: the program: ``build``, a function that returns an object (or a mapping) with
            ``model``, ``optimizer``, ``scheduler``, ``scaler``, ``extra``, ``loader`` as far as
            they exist, and ``step(batch)``; or these parts themselves and ``step_fn``. Without a
            loader, ``step_fn`` gets the number of the step. A step returns its loss, or a
            :class:`~nabla_replay.ReplayObservation`, or nothing. Further the fields of
            :class:`~nabla_replay.replaying.options.ReplayOptions`: ``from_step``, ``to_step``,
            ``localize``, ``reference``, ``rank``, ``progress``.

    Raises:
        UsageError: an argument is unknown, of the wrong kind or out of range.
        RecordError: nothing of what was asked for was recorded, or it does not fit the program.
        CheckpointError: the checkpoint to start from is damaged.
        RunFormatError: there is no run that this version reads.
    """
    options = replay_options(arguments)
    given = program_arguments(arguments)
    with RunReader.open(run) as reader:
        return _Replay(reader, program_of(given), options, given).run()


@dataclass(slots=True)
class _Replay:
    """One replay while it goes on."""

    reader: RunReader
    program: Program
    options: ReplayOptions
    given: Mapping[str, object]
    steps: list[StepResult] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    cautions: list[str] = field(default_factory=list)
    done: int = 0

    def run(self) -> ReplayResult:
        segments = segments_of(self.reader.log(self.options.rank))
        chosen = spans(segments, self.options.from_step, self.options.to_step)
        planned = sum(last - first + 1 for _, first, last in chosen)
        environment: tuple[Difference, ...] = ()
        found: Divergence | None = None
        for segment, first, last in chosen:
            environment = environment or self._environment(segment)
            window = self._window(segment, self.program)
            found = self._span(window, first, last, planned)
            if found is not None:
                break
        reasons = (*(f"no {name} to restore" for name in self.missing), *self.cautions)
        return ReplayResult(
            run=self.reader.folder,
            issues=tuple(replay_issues(tuple(self.steps), found, environment, reasons)),
            steps=tuple(self.steps),
            divergence=found,
            environment=environment,
            missing=self.missing,
            cautions=tuple(self.cautions),
            planned=planned,
        )

    def _span(self, window: Window, first: int, last: int, planned: int) -> Divergence | None:
        start = window.restore(first)
        self.missing = tuple(dict.fromkeys((*self.missing, *window.missing)))
        self._warn(window.segment, start)
        traces = window.segment.traces if self.options.localize else {}
        executed = window.run(start, last, lambda index: index in traces)
        try:
            for one in executed:
                found = self._compare(window, one, compared=one.index >= first)
                if self.options.progress is not None:
                    self.options.progress(self.done, planned)
                if found is not None:
                    return found
        except DataEnded as error:
            step = window.segment.steps[min(start + self.done, last)].step
            self.cautions.append(str(error))
            return Divergence(step=step, component="loader")
        return None

    def _compare(self, window: Window, one: Executed, *, compared: bool) -> Divergence | None:
        if one.recorded is None or one.replayed is None:
            return None
        segment = window.segment
        result = compare_step(one.recorded, one.replayed, window.fingerprinter, segment.number)
        place = self._place(window, one)
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
            since=_since(window, one.index, component),
            place=place,
        )

    # ------------------------------------------------------------------ modules
    def _place(self, window: Window, one: Executed) -> ModulePlace | None:
        if one.trace is None:
            return None
        paths = [path for path, _ in window.program.parts.model.named_modules()]
        recorded = unpack_trace(window.segment.traces[one.index], paths)
        if recorded is None:
            caution = "the model has modules of other names than the recorded one"
            if caution not in self.cautions:
                self.cautions.append(caution)
            return None
        return locate(recorded, shortened(one.trace))

    def _place_by_reference(self, window: Window, index: int) -> ModulePlace | None:
        """Execute a step twice, with the right program and with this one, and compare them."""
        if self.options.reference is None:
            return None
        right = program_of({"build": self.options.reference})
        mine = program_of(self.given)  # made anew: what it has counted so far must not count
        traces = [self._traced(window.segment, program, index) for program in (right, mine)]
        return None if None in traces else locate(*cast("list[StepTrace]", traces))

    def _traced(self, segment: Segment, program: Program, index: int) -> StepTrace | None:
        window = self._window(segment, program)
        start = window.restore(index)
        executed = window.run(start, index, lambda known: known == index)
        return [one.trace for one in executed][-1]

    # ------------------------------------------------------------------ around it
    def _window(self, segment: Segment, program: Program) -> Window:
        found = fingerprinter_for(self.reader, program, self.options.rank, segment.number)
        return Window(self.reader, segment, program, found)

    def _environment(self, segment: Segment) -> tuple[Difference, ...]:
        parts = self.program.parts
        now = gather_settings(parts.model, parts.loader)
        recorded = dict(segment.environment)
        return differences(recorded, now)

    def _warn(self, segment: Segment, start: int) -> None:
        recorded = segment.environment
        workers = recorded.get("loader workers")
        later = any(one.entry.epoch > 0 and one.records <= start for one in segment.epochs)
        if recorded.get("loader persistent workers") is True and workers and later:
            self.cautions.append(
                "persistent workers carry their generators from epoch to epoch: what they draw "
                "cannot be restored in the middle of a run"
            )


def spans(
    segments: tuple[Segment, ...], from_step: int | None, to_step: int | None
) -> list[tuple[Segment, int, int]]:
    """Return the steps that were asked for, as first and last index in each segment.

    Raises:
        RecordError: none of them was recorded.
    """
    found = []
    for segment in segments:
        wanted = [
            index
            for index, entry in enumerate(segment.steps)
            if (from_step is None or entry.step >= from_step)
            and (to_step is None or entry.step <= to_step)
        ]
        if wanted:
            found.append((segment, wanted[0], wanted[-1]))
    if not found:
        known = [entry.step for segment in segments for entry in segment.steps]
        there = f"steps {min(known)} to {max(known)} were" if known else "no step was"
        raise RecordError(f"nothing to replay: {there} recorded")
    return found


def _since(window: Window, index: int, component: str) -> int | None:
    """The step after the one in which the same part of the state was last compared."""
    parts = window.fingerprinter.parts
    if parts == 1 or component not in ("gradient", "buffer", "parameter", "extra"):
        return None
    earlier = max(index - parts + 1, 0)
    return window.segment.steps[earlier].step if earlier < index else None

"""``nabla_replay.what_if``: execute recorded steps again with one thing changed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from nabla_core.errors import UsageError

from ..capturing.generators import generator_state, restore_generators
from ..errors import RecordError
from ..replaying.feed import DataEnded
from ..replaying.history import Segment, segments_of
from ..replaying.program import program_of
from ..replaying.tables import fingerprinter_for
from ..replaying.window import Window
from ..store.reader import RunReader
from .applying import applied
from .changes import Change, ClipGradients, RaisePrecision
from .observing import Observer, Seen
from .options import WhatIfArguments, WhatIfOptions, what_if_options
from .result import Trial, WhatIf
from .symptoms import Symptom, judged, symptom_in, usual_norm

__all__ = ["what_if"]

_AFTER_STEPS = 20
_BEFORE_STEPS = 8
_SAME = 1e-6


def what_if(
    run: str | Path,
    changes: Iterable[Change],
    *,
    build: Callable[[], object],
    **options: Unpack[WhatIfArguments],
) -> WhatIf:
    """Execute recorded steps again from the nearest checkpoint, once for each change.

    First the steps are executed as they are: what goes wrong in them is the symptom. Then once for
    each change, with everything else alike. Each time ``build()`` makes a program of its own; what
    the caller holds stays as it is, and so do the global random generators.

    Args:
        run: folder of the run.
        changes: one thing each, from :mod:`nabla_replay.counterfactual.changes`.
        build: makes the program, as of :func:`nabla_replay.replay`.
        **options: fields of :class:`~nabla_replay.counterfactual.options.WhatIfOptions`.

    Raises:
        UsageError: an argument is wrong, or a change does not fit the program.
        RecordError: the step was not recorded, lies too far behind a checkpoint, or the state does
            not fit the program.
        RunFormatError: there is no run that this version reads.
    """
    chosen = what_if_options(options)
    wanted = tuple(changes)
    if not wanted:
        raise UsageError("what_if(changes=()): needs at least one change")
    with RunReader.open(run) as reader, _generators_kept():
        return _Experiment(reader, build, chosen, _span(reader, wanted, chosen)).run(wanted)


@dataclass(frozen=True, slots=True)
class _Span:
    """Steps of a segment, as indices; ``since`` is the step at which the first change acts."""

    segment: Segment
    first: int
    last: int
    since: int


@dataclass(slots=True)
class _Experiment:
    """All trials over the same steps."""

    reader: RunReader
    build: Callable[[], object]
    options: WhatIfOptions
    span: _Span
    cautions: list[str] = field(default_factory=list)

    def run(self, changes: tuple[Change, ...]) -> WhatIf:
        started = time.monotonic()
        plain = self._execute(None)
        each_s = time.monotonic() - started
        self._compare(plain)
        symptom = symptom_in(plain, self.span.since)
        trials = []
        for change in changes:
            left_s = self.options.budget_s - (time.monotonic() - started)
            trials.append(self._trial(change, symptom, plain, each_s <= left_s))
        steps = self.span.segment.steps
        return WhatIf(
            run=self.reader.folder,
            symptom=symptom,
            trials=tuple(trials),
            first=plain[0].step if plain else steps[self.span.first].step,
            last=steps[self.span.last].step,
            cautions=tuple(self.cautions),
        )

    def _trial(
        self, change: Change, symptom: Symptom | None, plain: list[Seen], in_time: bool
    ) -> Trial:
        if symptom is None:
            reason = "the unchanged steps show no number that is not finite and no rise fourfold"
            return _undecided(change, reason)
        if not in_time:
            return _undecided(change, f"no time is left of {self.options.budget_s:g} s")
        if isinstance(change, ClipGradients) and change.max_norm is None:
            usual = usual_norm(plain, change.since)
            if usual is None:
                return _undecided(change, "no step before it tells what the norm usually is")
            change = replace(change, max_norm=usual)
        seen = self._execute(change)
        if isinstance(change, RaisePrecision) and _mixes_types(seen) and not symptom.raised:
            seen = self._execute(change, keep=False)
        found = judged(symptom, seen, self.span.since)
        return Trial(
            change=change,
            outcome=found.outcome,
            reason=found.reason,
            value=found.value,
            steps=len(seen),
        )

    def _execute(self, change: Change | None, *, keep: bool = True) -> list[Seen]:
        """Execute all steps with a program of its own; a step that raises ends it."""
        program = program_of({"build": self.build})
        span, rank = self.span, self.options.rank
        hashes = fingerprinter_for(self.reader, program, rank, span.segment.number)
        with applied(program, change, keep=keep) as changed:
            window = Window(self.reader, span.segment, changed, hashes)
            start = window.restore(span.first)
            for name in window.missing:
                self._warn(f"no {name} to restore")
            with Observer(program.parts) as observer:
                return list(self._steps(window, observer, start))

    def _steps(self, window: Window, observer: Observer, start: int) -> Iterator[Seen]:
        for index in range(start, self.span.last + 1):
            step = self.span.segment.steps[index].step
            try:
                returned = window.execute(index)
            except DataEnded as error:
                self._warn(str(error))
                return
            except Exception as error:  # the program's own: that it raises is what was seen
                yield Seen(step, {}, f"{type(error).__name__}: {_line(error)}")
                return
            yield observer.take(step, returned)

    def _compare(self, plain: list[Seen]) -> None:
        """Say when the unchanged steps are not those that were recorded."""
        recorded = {entry.step: entry.loss for entry in self.span.segment.steps}
        for seen in plain:
            here, there = seen.values.get("loss"), recorded.get(seen.step)
            if here is not None and there is not None and not _alike(here, there):
                self._warn(
                    f"the loss of step {seen.step} is {here:.6g} and was recorded as {there:.6g}: "
                    "the program to replay is not the recorded one"
                )
                return

    def _warn(self, text: str) -> None:
        if text not in self.cautions:
            self.cautions.append(text)


def _span(reader: RunReader, changes: tuple[Change, ...], options: WhatIfOptions) -> _Span:
    since = min(change.since for change in changes)
    until = since + _AFTER_STEPS if options.until is None else options.until
    for segment in reversed(segments_of(reader.log(options.rank))):
        numbers = [entry.step for entry in segment.steps]
        if not numbers or not numbers[0] <= since <= numbers[-1]:
            continue
        first = next(index for index, number in enumerate(numbers) if number >= since)
        last = max(index for index, number in enumerate(numbers) if number <= max(until, since))
        first = max(first - _BEFORE_STEPS, 0)  # what is usual has to be seen too
        snapshot = segment.snapshot_before(first)
        count = last + 1 - (0 if snapshot is None else snapshot.records)
        if count > options.max_steps:
            raise RecordError(
                f"{count} steps would be executed from the checkpoint before step {since} on; "
                f"max_steps is {options.max_steps}"
            )
        return _Span(segment, first, last, since)
    raise RecordError(f"step {since} was not recorded: nothing can be changed in it")


@contextmanager
def _generators_kept() -> Iterator[None]:
    state = generator_state()
    try:
        yield
    finally:
        restore_generators(state)


def _mixes_types(seen: list[Seen]) -> bool:
    """Whether a module behind a wider one did not take what it was given."""
    text = seen[-1].raised if seen else ""
    return text.startswith("RuntimeError") and "dtype" in text.lower()


def _alike(one: float, other: float) -> bool:
    if not (math.isfinite(one) and math.isfinite(other)):
        return one == other or (math.isnan(one) and math.isnan(other))
    return abs(one - other) <= _SAME * max(abs(one), abs(other), 1e-30)


def _undecided(change: Change, reason: str) -> Trial:
    return Trial(change=change, outcome="undecided", reason=reason, value=math.nan, steps=0)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

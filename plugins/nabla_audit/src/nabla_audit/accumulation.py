"""AUD103 to AUD106: several backward passes per step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import Call, LoopFacts, OptimizerFacts
from nabla_guard.families.accumulation import AccumulationFacts, AccumulationWatch
from nabla_guard.families.backwards import BackwardFacts, BackwardWatch

from .intent import means_accumulation, reads_gradients
from .ledger import Ledger
from .options import AuditOptions
from .places import at, where
from .repeated_loss import RepeatedLosses
from .rules.protocol import (
    ACCUMULATION_DISCARDED,
    ACCUMULATION_NOT_DIVIDED,
    ACCUMULATION_WEIGHTING,
    BACKWARD_COUNT_CHANGED,
)
from .streak import CONSECUTIVE, Streaks

__all__ = ["AccumulationDetector"]

_SAME_DIRECTION = 1.0 - 1e-3
_SAME_GRADIENT = 1.0 - 1e-5
_FLOOR = 1e-3
_SETTLED_WINDOWS = 10
_UNEQUAL = 1.05
_PATIENCE = 12
_AGAIN = 200


@dataclass(frozen=True, slots=True)
class _Pattern:
    """How many backward passes of a window were thrown away, and how many the step used."""

    dropped: int
    kept: int


class AccumulationDetector:
    """Judges windows with more than one backward pass; one of them is measured."""

    rules = (
        ACCUMULATION_NOT_DIVIDED,
        ACCUMULATION_WEIGHTING,
        ACCUMULATION_DISCARDED,
        BACKWARD_COUNT_CHANGED,
    )

    def __init__(self, facts: LoopFacts, options: AuditOptions, session: Session) -> None:
        self._facts = facts
        self._options = options
        self._passes = facts.gather(BackwardWatch)
        self._oracle = facts.gather(AccumulationWatch)
        self._streaks = Streaks()
        self._ledger = Ledger(session)
        self._patterns: dict[int, _Pattern] = {}
        self._counts: dict[int, tuple[int, int]] = {}
        self._settled: dict[int, int] = {}
        self._done: set[tuple[int, str]] = set()
        self._told_pattern: dict[int, _Pattern] = {}
        self._weighted: dict[int, int] = {}
        self._tries: dict[int, int] = {}
        self._curious: set[int] = set()
        self._discarding: dict[int, tuple[OptimizerFacts, str]] = {}
        self._repeats = RepeatedLosses()

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._counts

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.closure:
            return ()
        writes = [call for call in optimizer.calls if call.kind == "write" and call.backward]
        if len(writes) < 2 and id(optimizer) not in self._counts:
            return ()
        return list(self._judge(optimizer, writes, record.step))

    def finish(self) -> Iterable[Issue]:
        """Say how often gradients were thrown away in the whole run."""
        for key, (optimizer, text) in self._discarding.items():
            times = self._ledger.times(key)
            self._ledger.rewrite(
                key,
                text.format(when=f"In {times} of {optimizer.steps} steps"),
                steps=Quantity(value=times, unit="steps", limit=CONSECUTIVE),
            )
        return ()

    # ------------------------------------------------------------------ windows
    def _judge(self, optimizer: OptimizerFacts, writes: list[Call], step: int) -> Iterator[Issue]:
        yield from self._count(optimizer, len(writes), step)
        if len(writes) < 2:
            self._streaks.count(id(optimizer), False, step)
            return
        pattern = _pattern(optimizer.calls)
        known = [self._passes.passes.get(call.backward) for call in writes]
        yield from self._repeats.judge(optimizer, known, pattern.kept, step)
        key = id(optimizer)
        steady = pattern == self._patterns.get(key, pattern) and _one_batch(known)
        if pattern.dropped:
            steady = steady and _is_alone(optimizer.calls) and _one_shape(known)
        self._patterns[key] = pattern
        length = self._streaks.count(key, steady, step)
        measured = self._oracle.take(optimizer)
        told = key in self._discarding  # from then on nothing more is asked of each pass
        if pattern.dropped and (length or (told and pattern == self._told_pattern.get(key))):
            self._ledger.held(key, step)
        if length >= CONSECUTIVE and measured is not None:
            yield from self._verdict(optimizer, pattern, measured, step)
        elif length >= CONSECUTIVE - 1 and not self._is_done(optimizer, pattern):
            self._oracle.measure(optimizer)
        self._attend(optimizer, pattern, steady)

    def _attend(self, optimizer: OptimizerFacts, pattern: _Pattern, steady: bool) -> None:
        """Ask for places and fingerprints of the next window, as long as they may decide anything.

        Windows that are no parts of one batch are looked at again from time to time.
        """
        key = id(optimizer)
        tries = self._tries[key] = self._tries.get(key, 0) + (not steady)
        curious = not self._is_done(optimizer, pattern) and (
            tries < _PATIENCE or optimizer.steps % _AGAIN < CONSECUTIVE + 1
        )
        (self._curious.add if curious else self._curious.discard)(key)
        self._passes.attentive = bool(self._curious)
        optimizer.pending = optimizer.pending or curious

    def _is_done(self, optimizer: OptimizerFacts, pattern: _Pattern) -> bool:
        return (id(optimizer), "dropped" if pattern.dropped else "kept") in self._done

    def _verdict(
        self, optimizer: OptimizerFacts, pattern: _Pattern, measured: AccumulationFacts, step: int
    ) -> Iterator[Issue]:
        key = id(optimizer)
        if pattern.dropped:
            self._done.add((key, "dropped"))
            if measured.used > _SAME_GRADIENT and _is_one_loop(optimizer):
                yield self._discarded(optimizer, pattern, measured, step)
            return
        self._done.add((key, "kept"))
        scales = {form.scale for form in measured.forms if form is not None}
        means = all(form is not None and form.is_mean for form in measured.forms)
        if means and _is_undivided(measured) and max(scales) - min(scales) < _FLOOR:
            yield self._summed(optimizer, measured, step)
        elif _is_weighted_wrongly(measured):
            self._weighted[key] = self._weighted.get(key, 0) + 1
            if self._weighted[key] == 1:
                self._done.discard((key, "kept"))  # a short last batch is no pattern: look again
                self._oracle.measure(optimizer)
            elif self._weighted[key] == 2:
                yield self._misweighted(optimizer, measured, step)
        else:
            self._weighted.pop(key, None)

    def _count(self, optimizer: OptimizerFacts, passes: int, step: int) -> Iterator[Issue]:
        key = id(optimizer)
        count, length = self._counts.get(key, (passes, 0))
        length = length + 1 if passes == count else 1
        self._counts[key] = (passes, length)
        settled = self._settled.get(key)
        if length == _SETTLED_WINDOWS and settled is None:
            self._settled[key] = passes
        elif settled is not None and passes != settled and length == CONSECUTIVE:
            self._settled[key] = passes
            yield _changed_issue(optimizer, settled, passes, step)

    # ------------------------------------------------------------------ issues
    def _meant(self, optimizer: OptimizerFacts, measured: AccumulationFacts) -> Severity:
        if self._options.accumulation > 1:
            return Severity.HIGH
        if _is_divided(measured):
            return Severity.MEDIUM  # halves may be two terms; three equal parts are one batch
        meant = means_accumulation(optimizer.backward_at, optimizer.step_at)
        return Severity.MEDIUM if meant else Severity.INFO

    def _summed(self, optimizer: OptimizerFacts, measured: AccumulationFacts, step: int) -> Issue:
        count = len(measured.forms)
        return ACCUMULATION_NOT_DIVIDED.issue(
            f"{count} backward passes of a mean loss{at(optimizer.backward_at)} are added up for "
            f"each {optimizer.name}.step, and none is divided: the gradient is "
            f"{measured.ratio:.3g} times that of one backward over all {count} micro-batches "
            f"(limit 1), with cosine {measured.cosine:.4f}.",
            step=step,
            where=where(optimizer.backward_at, optimizer.name),
            phase="loop",
            severity=self._meant(optimizer, measured),
            ratio=Quantity(value=measured.ratio, limit=1.0),
            cosine=Quantity(value=measured.cosine, limit=_SAME_DIRECTION),
            micro_batches=count,
        )

    def _misweighted(
        self, optimizer: OptimizerFacts, measured: AccumulationFacts, step: int
    ) -> Issue:
        units = [form.units or 0.0 for form in measured.forms if form is not None]
        return ACCUMULATION_WEIGHTING.issue(
            f"{len(units)} micro-batches with {min(units):.0f} to {max(units):.0f} units count the "
            f"same in each {optimizer.name}.step: the mean of their means has cosine "
            f"{measured.cosine:.4f} (limit {_SAME_DIRECTION}) with the gradient of one backward "
            "over all of them.",
            step=step,
            where=where(optimizer.backward_at, optimizer.name),
            phase="loop",
            severity=self._meant(optimizer, measured),
            ratio=measured.ratio,
            cosine=Quantity(value=measured.cosine, limit=_SAME_DIRECTION),
            fewest_units=min(units),
            most_units=max(units),
        )

    def _discarded(
        self,
        optimizer: OptimizerFacts,
        pattern: _Pattern,
        measured: AccumulationFacts,
        step: int,
    ) -> Issue:
        clear = next((call for call in optimizer.calls if call.kind == "clear"), None)
        place = clear.place if clear is not None else None
        total = pattern.dropped + pattern.kept
        text = (
            f"{{when}} the gradients of {pattern.dropped} of {total} micro-batches were "
            f"cleared{at(place)} before {optimizer.name}.step could use them: the step's gradient "
            f"is that of the last micro-batch alone (cosine {measured.used:.6f})."
        )
        self._discarding[id(optimizer)] = (optimizer, text)
        self._told_pattern[id(optimizer)] = pattern
        issue = ACCUMULATION_DISCARDED.issue(
            text.format(when=f"In {CONSECUTIVE} steps in a row"),
            step=step,
            where=where(place, optimizer.name),
            phase="loop",
            discarded=Quantity(value=pattern.dropped, unit="micro-batches", limit=0),
            micro_batches=total,
            cosine_with_last=measured.used,
        )
        return self._ledger.made(id(optimizer), issue)


def _pattern(calls: list[Call]) -> _Pattern:
    dropped = waiting = 0
    for call in calls:
        if call.kind == "write":
            waiting += 1
        elif call.kind == "clear":
            dropped, waiting = dropped + waiting, 0
    return _Pattern(dropped, waiting)


def _one_batch(known: list[BackwardFacts | None]) -> bool:
    """Whether the passes look like parts of one batch: other data each time, the same parameters,
    all written alike, and nothing else differentiated."""
    passes = [found for found in known if found is not None and found.batch is not None]
    if len(passes) != len(known):
        return False
    first = passes[0]
    return len({found.batch for found in passes}) == len(passes) and all(
        found.owners == first.owners
        and found.count == first.count
        and found.versions == first.versions
        and len(found.shapes) == len(first.shapes)
        and not found.other_leaf
        for found in passes
    )


def _one_shape(known: list[BackwardFacts | None]) -> bool:
    """A pass over a part of the batch, for a look at its gradient, is no micro-batch."""
    return len({found.shapes for found in known if found is not None}) == 1


def _is_alone(calls: list[Call]) -> bool:
    """Whether no other optimizer stepped between two passes: the first would have served it."""
    kinds = [call.kind for call in calls]
    if "foreign-step" not in kinds:
        return True
    return "write" not in kinds[kinds.index("foreign-step") :]


def _is_one_loop(optimizer: OptimizerFacts) -> bool:
    """Whether all passes come from one line, and their loop reads no gradient: one that is kept
    aside was not thrown away."""
    places = {str(call.place) for call in optimizer.calls if call.kind == "write" and call.place}
    return len(places) < 2 and not reads_gradients(optimizer.backward_at)


def _is_divided(measured: AccumulationFacts) -> bool:
    count = len(measured.forms)
    return count > 2 and all(
        form is not None and abs(form.scale * count - 1.0) < _FLOOR for form in measured.forms
    )


def _is_undivided(measured: AccumulationFacts) -> bool:
    forms = [form for form in measured.forms if form is not None]
    if len({form.kind for form in forms}) != 1 or min(form.units or 0.0 for form in forms) < 2:
        return False
    whole = all(abs(form.scale - 1.0) < _FLOOR for form in forms)
    return whole and measured.ratio > (1.0 + len(forms)) / 2


def _is_weighted_wrongly(measured: AccumulationFacts) -> bool:
    forms = [form for form in measured.forms if form is not None]
    units = [form.units for form in forms]
    if not forms or len({form.kind for form in forms}) != 1 or None in units:
        return False
    known = [unit for unit in units if unit]
    return (
        len(known) == len(units)
        and max(known) > _UNEQUAL * min(known)
        and measured.cosine < _SAME_DIRECTION
    )


def _changed_issue(optimizer: OptimizerFacts, before: int, now: int, step: int) -> Issue:
    return BACKWARD_COUNT_CHANGED.issue(
        f"{optimizer.name}.step used {before} backward passes each time and uses {now} in the last "
        f"{CONSECUTIVE} steps: what one step is made of has changed.",
        step=step,
        where=where(optimizer.step_at, optimizer.name),
        phase="loop",
        passes_before=before,
        passes_now=Quantity(value=now, unit="backward passes", limit=before),
    )

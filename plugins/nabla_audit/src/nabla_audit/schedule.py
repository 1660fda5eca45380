"""AUD303 to AUD306: learning rates and their schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts, OptimizerFacts
from nabla_guard.families.scaling import ScalerWatch
from nabla_guard.families.schedulers import SchedulerFacts, SchedulerWatch

from .ledger import Ledger
from .places import at, where
from .rules.mode import (
    LR_ZERO,
    SCHEDULER_BEFORE_OPTIMIZER,
    SCHEDULER_HORIZON,
    SCHEDULER_STEPPED_TOO_OFTEN,
)
from .streak import CONSECUTIVE, Streaks

__all__ = ["RateDetector", "ScheduleDetector"]

_PAST = 3
_RISEN = 1.05
_MIN_STEPS = 10
_SELDOM = 4


class RateDetector:
    """Judges the learning rates of each step with gradients."""

    rules = (LR_ZERO,)
    patient = True  # a rate of zero ends the calm

    def __init__(self, facts: LoopFacts, session: Session | None = None) -> None:
        self._facts = facts
        self._streaks = Streaks()
        self._ledger = Ledger(session)
        self._above: set[int] = set()
        self._found: dict[int, tuple[OptimizerFacts, int]] = {}
        self._rose: set[int] = set()
        self._ran_out: set[int] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None or not optimizer.rates:
            return ()
        key = id(optimizer)
        if any(optimizer.rates):
            self._above.add(key)
            if key in self._found:
                self._rose.add(key)
            self._streaks.count(key, False, record.step)
            return ()
        self._ledger.held(key, record.step)
        has_gradient = optimizer.gradient == "nonzero"
        if self._streaks.count(key, has_gradient, record.step) != CONSECUTIVE:
            return ()
        since = self._streaks.since(key)
        self._found[key] = (optimizer, since)
        return [self._ledger.made(key, self._issue(optimizer, since, record.step))]

    def finish(self) -> Iterable[Issue]:
        """Say how many steps had no learning rate, and whether it came back."""
        for key, (optimizer, since) in self._found.items():
            times = self._ledger.times(key)
            warm_up = key in self._rose and key not in self._ran_out
            self._ledger.rewrite(
                key,
                f"The learning rate of all {len(optimizer.rates)} groups of {optimizer.name} was "
                f"exactly 0 in {times} of {optimizer.steps} steps since step {since}"
                + (", and rose later." if key in self._rose else " (limit 0)."),
                severity=Severity.INFO if warm_up else None,
                steps=Quantity(value=times, unit="steps", limit=0),
            )
        return ()

    def _issue(self, optimizer: OptimizerFacts, since: int, step: int) -> Issue:
        ran_out = id(optimizer) in self._above
        if ran_out:
            self._ran_out.add(id(optimizer))
        place = optimizer.step_at or optimizer.made_at
        how = "after it had been above 0" if ran_out else "and never was above 0"
        return LR_ZERO.issue(
            f"The learning rate of all {len(optimizer.rates)} groups of {optimizer.name} is "
            f"exactly 0 in {CONSECUTIVE} steps with gradients in a row since step {since}, {how}.",
            step=step,
            where=where(place, optimizer.name),
            phase="optimizer",
            severity=Severity.HIGH if ran_out else Severity.MEDIUM,
            lr=Quantity(value=0.0, limit=0.0),
            consecutive_steps=CONSECUTIVE,
            since_step=since,
        )


class ScheduleDetector:
    """Judges how often schedulers are stepped, between steps and over the whole run."""

    rules = (SCHEDULER_STEPPED_TOO_OFTEN, SCHEDULER_BEFORE_OPTIMIZER, SCHEDULER_HORIZON)

    def __init__(self, facts: LoopFacts, session: Session | None = None) -> None:
        self._facts = facts
        self._watch = facts.gather(SchedulerWatch)
        self._scaler = facts.gather(ScalerWatch)
        self._often = Streaks()
        self._early = Streaks()
        self._windows: dict[int, int] = {}
        self._told: set[int] = set()
        self._ledger = Ledger(session)

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._watch.schedulers

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the calls since the previous step of this optimizer."""
        if not self._watch.schedulers:
            return ()
        optimizer = self._facts.stepping
        if optimizer is None:
            return ()
        found = [
            issue
            for scheduler in self._watch.of(optimizer)
            for issue in self._judge(scheduler, record.step)
        ]
        found.extend(self._doubled(optimizer, record.step))
        for scheduler in self._watch.schedulers.values():
            if scheduler.rival_steps >= CONSECUTIVE and id(scheduler) not in self._told:
                self._told.add(id(scheduler))
                found.append(_rival_issue(scheduler, record.step))
        return found

    def finish(self) -> Iterable[Issue]:
        """Judge the whole run."""
        for scheduler in self._watch.schedulers.values():
            yield from self._at_end(scheduler)

    # ------------------------------------------------------------------ private
    def _judge(self, scheduler: SchedulerFacts, step: int) -> Iterator[Issue]:
        key = id(scheduler)
        window = scheduler.window if scheduler.optimizer.steps else 0
        counted = window in scheduler.others.values()  # it goes by the steps of another optimizer
        same = window > 1 and window == self._windows.get(key, window) and not counted
        self._windows[key] = window
        length = self._often.count(key, same, step)
        if length == CONSECUTIVE:
            yield _often_issue(scheduler, window, step)
        early = (
            scheduler.early_calls == 1 and scheduler.window == 1 and not self._is_excused(scheduler)
        )
        if self._early.count(key, early, step) == CONSECUTIVE + 1 == scheduler.calls:
            self._told.add(key)
            yield _early_issue(scheduler, scheduler.calls, step)
        if key not in self._told and _is_past(scheduler):
            self._told.add(key)
            yield _past_issue(scheduler, step)

    def _doubled(self, optimizer: OptimizerFacts, step: int) -> Iterator[Issue]:
        """Two equal schedules of one optimizer, of which one was meant for another optimizer."""
        mine = [found for found in self._watch.of(optimizer) if found.calls >= CONSECUTIVE]
        if len(mine) < 2 or id(optimizer) in self._told:
            return
        equal = Counter(found.settings for found in mine if found.settings)
        bare = [
            other
            for other in self._facts.optimizers
            if other.steps >= CONSECUTIVE and not self._watch.of(other)
        ]
        if bare and max(equal.values(), default=0) > 1:
            self._told.add(id(optimizer))
            yield _doubled_issue(mine, bare[0], step)

    def _is_excused(self, scheduler: SchedulerFacts) -> bool:
        """A scaler skips first steps; a schedule that is told its epoch is set, not stepped."""
        return self._scaler.ever or scheduler.epochal

    def _at_end(self, scheduler: SchedulerFacts) -> Iterator[Issue]:
        if id(scheduler) in self._told:
            return
        per_epoch = scheduler.early_calls == 1 and scheduler.calls >= CONSECUTIVE
        if per_epoch and scheduler.late_steps > 1 and not self._is_excused(scheduler):
            yield _early_issue(scheduler, scheduler.calls, None)
        steps = scheduler.optimizer.steps
        horizon = scheduler.horizon
        if scheduler.epochal or horizon < _MIN_STEPS or steps < _MIN_STEPS:
            return
        if abs(steps - horizon) <= 1 and scheduler.calls * _SELDOM <= horizon:
            yield _seldom_issue(scheduler, Severity.MEDIUM)
        elif scheduler.position * 2 < horizon:
            yield _seldom_issue(scheduler, Severity.INFO)


def _is_past(scheduler: SchedulerFacts) -> bool:
    """Whether a cosine has gone on after its end, and its rate has risen from the lowest."""
    cosine = scheduler.name == "CosineAnnealingLR" and not scheduler.epochal
    if not cosine or scheduler.position < scheduler.horizon + _PAST:
        return False
    lowest, rate = scheduler.lowest_rate, scheduler.rate
    return lowest is not None and rate is not None and rate > _RISEN * lowest


def _often_issue(scheduler: SchedulerFacts, window: int, step: int) -> Issue:
    optimizer = scheduler.optimizer.name
    return SCHEDULER_STEPPED_TOO_OFTEN.issue(
        f"{scheduler.name}.step{at(scheduler.place)} ran {window} times between each of "
        f"{CONSECUTIVE} steps of {optimizer} in a row (limit 1).",
        step=step,
        where=_where(scheduler),
        phase="loop",
        severity=Severity.MEDIUM if scheduler.horizon else Severity.HIGH,
        calls_per_step=Quantity(value=window, unit="calls", limit=1),
    )


def _doubled_issue(mine: list[SchedulerFacts], bare: OptimizerFacts, step: int) -> Issue:
    first = mine[-1]
    made = f" (made at {bare.made_at})" if bare.made_at is not None else ""
    return SCHEDULER_STEPPED_TOO_OFTEN.issue(
        f"{len(mine)} schedulers with the same settings ({first.name}{at(first.place)}) move the "
        f"rate of {first.optimizer.name} (limit 1), while {bare.name}{made} has no scheduler.",
        step=step,
        where=_where(first),
        phase="loop",
        severity=Severity.MEDIUM,
        schedulers=Quantity(value=len(mine), unit="schedulers", limit=1),
    )


def _early_issue(scheduler: SchedulerFacts, calls: int, step: int | None) -> Issue:
    return SCHEDULER_BEFORE_OPTIMIZER.issue(
        f"{scheduler.name}.step{at(scheduler.place)} ran once before the first step of "
        f"{scheduler.optimizer.name} and before each of the next ones, {calls} times in all: the "
        "first learning rate is never used (limit: 0 calls before the first step).",
        step=step,
        where=_where(scheduler),
        phase="loop",
        calls_before_first_step=Quantity(value=1, unit="calls", limit=0),
        calls=calls,
    )


def _rival_issue(scheduler: SchedulerFacts, step: int) -> Issue:
    own, rival = scheduler.optimizer, scheduler.rival
    named = rival.name if rival is not None else "another optimizer"
    made = f", made at {own.made_at}," if own.made_at is not None else ""
    return SCHEDULER_BEFORE_OPTIMIZER.issue(
        f"{scheduler.name}{at(scheduler.place)} was stepped {scheduler.calls} times for {own.name}"
        f"{made} which has made 0 steps (limit 1), while {named} makes the steps on the same "
        "parameters: its learning rate follows no schedule.",
        step=step,
        where=_where(scheduler),
        phase="loop",
        severity=Severity.HIGH,
        own_steps=Quantity(value=own.steps, unit="steps", limit=1),
        calls=scheduler.calls,
    )


def _past_issue(scheduler: SchedulerFacts, step: int) -> Issue:
    return SCHEDULER_HORIZON.issue(
        f"{scheduler.name}{at(scheduler.place)} has been stepped {scheduler.position} times with "
        f"{scheduler.horizon_name} = {scheduler.horizon}: past its end the learning rate rises "
        f"again, from {scheduler.lowest_rate:.3g} to {scheduler.rate:.3g}.",
        step=step,
        where=_where(scheduler),
        phase="loop",
        position=Quantity(value=scheduler.position, unit="calls", limit=scheduler.horizon),
    )


def _seldom_issue(scheduler: SchedulerFacts, severity: Severity) -> Issue:
    steps = scheduler.optimizer.steps
    return SCHEDULER_HORIZON.issue(
        f"{scheduler.name}{at(scheduler.place)} was stepped {scheduler.calls} times in {steps} "
        f"steps of {scheduler.optimizer.name}, with {scheduler.horizon_name} = "
        f"{scheduler.horizon}: the run ended at {scheduler.position / scheduler.horizon:.0%} of "
        "the schedule.",
        where=_where(scheduler),
        phase="loop",
        severity=severity,
        calls=Quantity(value=scheduler.calls, unit="calls", limit=scheduler.horizon),
        optimizer_steps=steps,
    )


def _where(scheduler: SchedulerFacts) -> Location:
    place = scheduler.place
    return where(place, scheduler.name, module=None if place is None else scheduler.name)

"""Learning-rate schedulers: how often each is stepped, and between which steps."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..facts import OptimizerFacts, Place
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["SchedulerFacts", "SchedulerWatch"]

_HORIZONS = ("total_steps", "T_max", "total_iters")
_EARLY_CALLS = 8
_MOVING = ("last_epoch", "base_lrs", "optimizer")


@dataclass(slots=True, kw_only=True, eq=False)
class SchedulerFacts:
    """One scheduler.

    Attributes:
        name: class name.
        optimizer: facts of its optimizer.
        settings: its class and plain attributes; empty for a schedule given by a function.
        place: where it is stepped, as last seen.
        window: calls since the last step of its optimizer.
        others: steps of each other optimizer since the last step of its own one.
        calls: all calls.
        early_calls: calls before the first step of its optimizer.
        late_steps: steps of its optimizer after the last call.
        steps: steps of its optimizer since the first call, or since it was made.
        position: ``last_epoch`` after the last call.
        horizon: length of the schedule in calls, for classes that state it; 0 for the others.
        horizon_name: name of that argument.
        rate: learning rate of the first group after the last call; ``None`` when not readable.
        lowest_rate: smallest such rate so far.
        epochal: whether it was ever called with an explicit epoch.
        rival: while its own optimizer has never stepped: another one that has, on parameters of
            its own optimizer.
        rival_steps: steps of the rival between calls of the scheduler.
    """

    name: str
    optimizer: OptimizerFacts
    settings: tuple[str, ...] = ()
    place: Place | None = None
    window: int = 0
    others: Counter[int] = field(default_factory=Counter)
    calls: int = 0
    early_calls: int = 0
    late_steps: int = 0
    steps: int = 0
    position: int = 0
    horizon: int = 0
    horizon_name: str = ""
    rate: float | None = None
    lowest_rate: float | None = None
    epochal: bool = False
    rival: OptimizerFacts | None = None
    rival_steps: int = 0


class SchedulerWatch(Watch):
    """Counts calls of ``step`` of the outermost scheduler: composed ones step their parts."""

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.schedulers: dict[int, SchedulerFacts] = {}
        self._refs: dict[int, weakref.ref[LRScheduler]] = {}
        self._patches: Patches | None = None
        self._wrapped: set[type] = set()
        self._running = 0
        self._making = 0

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self.schedulers else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        self._patches, self._wrapped, self._running, self._making = patches, set(), 0, 0
        for kind in (LRScheduler, *_subclasses(LRScheduler)):
            self._wrap_class(kind)
        patches.replace(LRScheduler, "__init__", self._wrap_making)

    def of(self, optimizer: OptimizerFacts) -> list[SchedulerFacts]:
        """Return the schedulers of an optimizer that were stepped at least once."""
        return [facts for facts in self.schedulers.values() if facts.optimizer is optimizer]

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        stepped = record.facts
        for facts in self.schedulers.values():
            if facts.optimizer is stepped:
                facts.window = 0
                facts.others.clear()
                facts.late_steps += 1
                facts.steps += 1
                continue
            facts.others[id(stepped)] += 1
            if facts.rival is stepped or not facts.optimizer.steps:
                self._note_rival(facts, stepped, optimizer)

    # ------------------------------------------------------------------ private
    def _wrap_class(self, kind: object) -> None:
        if self._patches is None or not (isinstance(kind, type) and issubclass(kind, LRScheduler)):
            return
        if kind in self._wrapped or "step" not in vars(kind):
            return
        if not issubclass(kind, ReduceLROnPlateau):  # it steps on a metric, as often as one likes
            self._wrapped.add(kind)
            self._patches.replace(kind, "step", self._wrap_step)

    def _wrap_making(self, original: Replacement) -> Replacement:
        def make(scheduler: LRScheduler, *args: object, **kwargs: object) -> object:
            if self.watches:
                for kind in type(scheduler).__mro__:
                    self._wrap_class(kind)
            self._making += 1  # it steps itself to its first rate
            try:
                return original(scheduler, *args, **kwargs)
            finally:
                self._making -= 1

        return make

    def _wrap_step(self, original: Replacement) -> Replacement:
        def step(scheduler: LRScheduler, *args: object, **kwargs: object) -> object:
            self._running += 1
            try:
                outcome = original(scheduler, *args, **kwargs)
            finally:
                self._running -= 1
            inside = self._running or self._making or getattr(scheduler, "_is_initial", False)
            if not inside:
                given = bool(args) or kwargs.get("epoch") is not None
                self.guarded(lambda: self._note(scheduler, given))
            return outcome

        return step

    def _note_rival(
        self, facts: SchedulerFacts, stepped: OptimizerFacts, optimizer: Optimizer
    ) -> None:
        """Note that another optimizer stepped what the scheduler's own one never stepped."""
        record = self.loop.book.of(facts.optimizer)
        own = None if record is None else record.ref()
        if own is None or facts.optimizer.steps or _is_one(own, optimizer):
            facts.rival = None
            return
        theirs = {id(parameter) for parameter in stepped.parameters}
        if any(id(parameter) in theirs for parameter in facts.optimizer.parameters):
            facts.rival_steps += facts.window > 0
            facts.rival = stepped
            facts.window = 0

    def _note(self, scheduler: LRScheduler, given: bool) -> None:
        facts = self._facts(scheduler)
        if facts is None:
            return
        facts.calls += 1
        facts.window += 1
        facts.late_steps = 0
        facts.epochal = facts.epochal or given
        facts.early_calls += not facts.optimizer.steps
        facts.position = int(getattr(scheduler, "last_epoch", 0))
        if facts.calls <= _EARLY_CALLS or facts.window > 1:
            facts.place = user_place()
        facts.rate = _rate(scheduler.optimizer)
        if facts.rate is not None:
            facts.lowest_rate = min(facts.rate, facts.lowest_rate or facts.rate)

    def _facts(self, scheduler: LRScheduler) -> SchedulerFacts | None:
        known = self._refs.get(id(scheduler))
        if known is not None and known() is scheduler:
            return self.schedulers[id(scheduler)]
        optimizer = getattr(scheduler, "optimizer", None)
        if not isinstance(optimizer, Optimizer):
            return None
        record = self.loop.book.get(optimizer, self.loop.scope.has_optimizer)
        if not record.judged:
            return None
        name, horizon = _horizon(scheduler)
        self._refs[id(scheduler)] = weakref.ref(scheduler)
        facts = SchedulerFacts(
            name=type(scheduler).__name__,
            optimizer=record.facts,
            settings=_settings(scheduler),
            horizon=horizon,
            horizon_name=name,
        )
        self.schedulers[id(scheduler)] = facts
        self.loop.calm.attend()
        self.loop.calm.attend()  # from now on steps are counted
        return facts


def _subclasses(kind: type[LRScheduler]) -> Iterator[type[LRScheduler]]:
    for found in kind.__subclasses__():
        yield found
        yield from _subclasses(found)


def _horizon(scheduler: LRScheduler) -> tuple[str, int]:
    for name in _HORIZONS:
        value = getattr(scheduler, name, None)
        if isinstance(value, (int, float)) and value > 0:
            return name, int(value)
    return "", 0


def _settings(scheduler: LRScheduler) -> tuple[str, ...]:
    own = vars(scheduler)
    if any(callable(value) or "lambda" in name for name, value in own.items()):
        return ()
    plain = [
        f"{name}={value}"
        for name, value in own.items()
        if not name.startswith("_") and name not in _MOVING
    ]
    return type(scheduler).__name__, *sorted(plain)


def _is_one(own: Optimizer, other: Optimizer) -> bool:
    """Whether two optimizers are one: a wrapper and what it wraps."""
    groups = {id(group) for group in own.param_groups}
    shares = any(id(group) in groups for group in other.param_groups)
    return shares or own in vars(other).values() or other in vars(own).values()


def _rate(optimizer: Optimizer) -> float | None:
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return float(rate) if isinstance(rate, (int, float)) else None

"""Families of facts that are gathered only while a detector wants them.

A detector asks for a family by its class (:meth:`nabla_guard.facts.LoopFacts.gather`); the loop
then makes it, tells it what happens, and lets it replace attributes of torch while it watches.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar, cast

from torch._C import _len_torch_dispatch_stack

from nabla_core.problem import Problem

from ..taps.instrument import INSTRUMENT
from ..taps.patching import Patches

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from ..facts import Call
    from .book import OptimizerRecord
    from .gradients import GradientRecord
    from .live import LiveLoop
    from .roots import RootRecord

__all__ = ["EVERY_EVENT", "Watch", "WatchT", "Watches"]

WatchT = TypeVar("WatchT", bound="Watch")
_Listening = dict[str, "tuple[Watch, ...]"]

_EVENTS = ("forward_ended", "backward_started", "backward_ended", "step_started", "step_ended")
_NONE: frozenset[str] = frozenset()
_patience_of = attrgetter("patient")
_NO_NAMES: Mapping[str, object] = {}
EVERY_EVENT = frozenset(_EVENTS)
"""What a watch that has nothing left to do is patient about."""


class Watch:
    """One family of facts. Override what you need; what is not overridden costs nothing.

    Attributes:
        follows: it may begin to follow the user's calls when a step ends, so that it is told of
            that after the others, whose calls it need not see.

    Args:
        loop: the loop that is watched.
    """

    follows = False

    def __init__(self, loop: LiveLoop) -> None:
        self.loop = loop

    @property
    def patient(self) -> frozenset[str]:
        """Names of the events that it can do without in steps that are like the ones before.

        See :class:`.calm.Calm`: every sixteenth step is delivered in full, and so is every step
        from an unusual event on. Asked whenever a loop becomes calm.
        """
        return frozenset()

    def start(self, patches: Patches) -> None:
        """Watching begins (again): replace attributes of torch through ``patches``.

        A replacement may stay in place after the end: it must pass on when :meth:`watches` says no.
        """

    def stop(self) -> None:
        """Watching ends; let go of the user's tensors."""

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """A root module returned, with or without gradients."""

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """An accumulating backward pass is about to run; its graph is still whole."""

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """A backward pass is over and wrote the gradients ``written``."""

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """A step is about to run (with a closure: has run); the detectors judge after this."""

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """A step is over."""

    @property
    def watches(self) -> bool:
        """Whether events are delivered now."""
        return self in self.loop.watches and not INSTRUMENT.replaying

    def guarded(self, work: Callable[[], None]) -> None:
        """Do ``work`` from inside a replaced attribute; an error ends only this family."""
        if self.watches:
            try:
                work()
            except Exception as error:
                self.loop.watches.drop(self, error)


class Watches:
    """The families of one loop.

    Attributes:
        output: what the root module returned, while the families are told about its call.
        listening: who is told about each event now; without anybody, an event need not be told.
    """

    def __init__(self, loop: LiveLoop) -> None:
        self._loop = loop
        self._families: dict[type[Watch], Watch] = {}
        self.listening: _Listening = dict.fromkeys(_EVENTS, ())
        self._active: list[Watch] = []
        self._events: dict[int, tuple[str, ...]] = {}
        self._patches: dict[int, Patches] = {}
        self._started = False
        self._settling = False
        self._calm = False
        self._everyone: _Listening | None = None  # what all listen to
        self._restless: tuple[list[frozenset[str]], _Listening] | None = None  # in a calm
        self.output: object = None

    def __contains__(self, watch: object) -> bool:
        return watch in self._active

    def calm(self, on: bool) -> None:
        """Deliver only to those that are not patient, or to all again."""
        self._calm = on
        INSTRUMENT.let_through(None)  # somebody may listen who did not
        self.listening = self._listeners()

    def listens(self, *events: str) -> bool:
        """Whether any family wants one of these events now."""
        return any(self.listening[event] for event in events)

    def gather(self, family: type[WatchT]) -> WatchT:
        """Return the watch of this class; it is made at the first call."""
        known = self._families.get(family)
        if known is None:
            known = self._families[family] = family(self._loop)
            if self._started:
                self._start(known)
        return cast("WatchT", known)

    def start(self) -> None:
        """Begin to deliver to all of them."""
        self._started = True
        self._settling = True
        for watch in tuple(self._families.values()):
            self._start(watch)
        self._settling = False
        self._share()

    def stop(self) -> None:
        """Stop delivering and put back what they replaced."""
        self._started = False
        self._settling = True
        for watch in reversed(tuple(self._active)):
            self._stop(watch)
        self._settling = False
        self._share()

    def drop(self, watch: Watch, error: Exception) -> None:
        """End one family that raised, and say so; the others and the training go on."""
        self._stop(watch)
        self._report(watch, error)

    def _report(self, watch: Watch, error: Exception) -> None:
        self._loop.session.problem(
            Problem(
                rule="NAB004",
                plugin="guard",
                message=f"{type(watch).__name__} raised {type(error).__name__}: {error}; rules "
                f"that need its facts were not judged from step {self._loop.index} on",
                hint="report it with the program that shows it; the training itself went on",
            )
        )

    # ------------------------------------------------------------------ events
    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """See :class:`Watch`."""
        if _len_torch_dispatch_stack():
            return  # values may not exist there, and reading them would be seen by that mode
        for watch in self.listening["forward_ended"]:
            try:
                watch.forward_ended(root, module, args, kwargs)
            except Exception as error:
                self.drop(watch, error)

    def called(
        self, root: RootRecord, module: Module, args: tuple[object, ...], output: object
    ) -> None:
        """A root module was called with ``args`` and returned ``output``."""
        self.output = output
        self.forward_ended(root, module, args, _NO_NAMES)
        self.output = None

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`Watch`."""
        if _len_torch_dispatch_stack():
            return  # values may not exist there, and reading them would be seen by that mode
        for watch in self.listening["backward_started"]:
            try:
                watch.backward_started(roots)
            except Exception as error:
                self.drop(watch, error)

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """See :class:`Watch`."""
        if _len_torch_dispatch_stack():
            return  # values may not exist there, and reading them would be seen by that mode
        for watch in self.listening["backward_ended"]:
            try:
                watch.backward_ended(roots, written, call)
            except Exception as error:
                self.drop(watch, error)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`Watch`."""
        if _len_torch_dispatch_stack():
            return  # values may not exist there, and reading them would be seen by that mode
        for watch in self.listening["step_started"]:
            try:
                watch.step_started(record, optimizer)
            except Exception as error:
                self.drop(watch, error)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`Watch`."""
        if _len_torch_dispatch_stack():
            return  # values may not exist there, and reading them would be seen by that mode
        for watch in self.listening["step_ended"]:
            try:
                watch.step_ended(record, optimizer)
            except Exception as error:
                self.drop(watch, error)

    # ------------------------------------------------------------------ private
    def _start(self, watch: Watch) -> None:
        if watch in self._active:
            return
        self._active.append(watch)
        self._events[id(watch)] = _events_of(type(watch))
        self._patches[id(watch)] = patches = Patches()
        self._share()
        try:
            watch.start(patches)
        except Exception as error:
            self.drop(watch, error)

    def _stop(self, watch: Watch) -> None:
        if watch not in self._active:
            return
        self._active.remove(watch)
        self._patches.pop(id(watch)).restore()
        del self._events[id(watch)]
        self._share()
        try:
            watch.stop()
        except Exception as error:
            self._report(watch, error)

    def _share(self) -> None:
        if self._settling:
            return
        INSTRUMENT.let_through(None)  # somebody may listen who did not
        self._everyone = self._restless = None
        self.listening = self._listeners()

    def _listeners(self) -> _Listening:
        if not self._calm:
            if self._everyone is None:
                self._everyone = self._without(repeat(_NONE))
            return self._everyone
        patience = [*map(_patience_of, self._active)]
        if self._restless is None or self._restless[0] != patience:
            self._restless = patience, self._without(patience)
        return self._restless[1]

    def _without(self, patience: Iterable[frozenset[str]]) -> _Listening:
        """Return who is told about each event, without those who are patient about it."""
        found: dict[str, list[Watch]] = {event: [] for event in _EVENTS}
        for watch, patient in zip(self._active, patience, strict=False):
            if patient is EVERY_EVENT:
                continue
            for event in self._events[id(watch)]:
                if event not in patient:
                    found[event].append(watch)
        found["step_ended"].sort(key=lambda watch: getattr(watch, "follows", False))
        return {event: tuple(watches) for event, watches in found.items()}


_KNOWN: weakref.WeakKeyDictionary[type[Watch], tuple[str, ...]] = weakref.WeakKeyDictionary()


def _events_of(kind: type[Watch]) -> tuple[str, ...]:
    """The events that a kind of watch wants to hear of."""
    known = _KNOWN.get(kind)
    if known is None:
        wanted = [event for event in _EVENTS if getattr(kind, event) is not getattr(Watch, event)]
        known = _KNOWN[kind] = tuple(wanted)
    return known

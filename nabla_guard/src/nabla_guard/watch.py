"""Families of facts that are gathered only while a detector wants them.

A detector asks for a family by its class (:meth:`nabla_guard.facts.LoopFacts.gather`); the loop then
makes it, tells it what happens, and lets it replace attributes of torch for as long as it watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from nabla_core.problem import Problem

from .patching import Patches

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from .book import OptimizerRecord
    from .facts import Call
    from .gradients import GradientRecord
    from .loop import LiveLoop
    from .roots import RootRecord

__all__ = ["Watch", "WatchT", "Watches"]

WatchT = TypeVar("WatchT", bound="Watch")


class Watch:
    """One family of facts. Override what you need; what is not overridden costs nothing.

    Args:
        loop: the loop that is watched.
    """

    def __init__(self, loop: LiveLoop) -> None:
        self.loop = loop

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
        return self in self.loop.watches

    def guarded(self, work: Callable[[], None]) -> None:
        """Do ``work`` from inside a replaced attribute; an error ends only this family."""
        if self.watches:
            try:
                work()
            except Exception as error:
                self.loop.watches.drop(self, error)


_EVENTS = ("forward_ended", "backward_started", "backward_ended", "step_started", "step_ended")


class Watches:
    """The families of one loop."""

    def __init__(self, loop: LiveLoop) -> None:
        self._loop = loop
        self._families: dict[type[Watch], Watch] = {}
        self._listening: dict[str, tuple[Watch, ...]] = dict.fromkeys(_EVENTS, ())
        self._active: list[Watch] = []
        self._patches: dict[int, Patches] = {}
        self._started = False

    def __contains__(self, watch: object) -> bool:
        return watch in self._active

    def gather(self, family: type[WatchT]) -> WatchT:
        """Return the watch of this class; at the first call it is made, and starts with the loop."""
        known = self._families.get(family)
        if known is None:
            known = self._families[family] = family(self._loop)
            if self._started:
                self._start(known)
        return cast("WatchT", known)

    def start(self) -> None:
        """Begin to deliver to all of them."""
        self._started = True
        for watch in tuple(self._families.values()):
            self._start(watch)

    def stop(self) -> None:
        """Stop delivering and put back what they replaced."""
        self._started = False
        for watch in reversed(tuple(self._active)):
            self._stop(watch)

    def drop(self, watch: Watch, error: Exception) -> None:
        """End one family that raised, and say so; the others and the training go on."""
        self._stop(watch)
        self._loop.session.problem(
            Problem(
                rule="NAB004",
                plugin="guard",
                message=f"{type(watch).__name__} raised {type(error).__name__}: {error}; rules that "
                f"need its facts were not judged from step {self._loop.index} on",
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
        for watch in self._listening["forward_ended"]:
            try:
                watch.forward_ended(root, module, args, kwargs)
            except Exception as error:
                self.drop(watch, error)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`Watch`."""
        for watch in self._listening["backward_started"]:
            try:
                watch.backward_started(roots)
            except Exception as error:
                self.drop(watch, error)

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """See :class:`Watch`."""
        for watch in self._listening["backward_ended"]:
            try:
                watch.backward_ended(roots, written, call)
            except Exception as error:
                self.drop(watch, error)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`Watch`."""
        for watch in self._listening["step_started"]:
            try:
                watch.step_started(record, optimizer)
            except Exception as error:
                self.drop(watch, error)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`Watch`."""
        for watch in self._listening["step_ended"]:
            try:
                watch.step_ended(record, optimizer)
            except Exception as error:
                self.drop(watch, error)

    # ------------------------------------------------------------------ private
    def _start(self, watch: Watch) -> None:
        if watch in self._active:
            return
        self._active.append(watch)
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
        self._share()
        watch.stop()

    def _share(self) -> None:
        for event in _EVENTS:
            plain = getattr(Watch, event)
            self._listening[event] = tuple(
                watch for watch in self._active if getattr(type(watch), event) is not plain
            )

"""Deep mode: ranges of layers as in standard mode, and of the result of every op.

The dispatch mode is on the stack while a model runs, between its end and the backward pass, and
during the backward pass; never while optimizers, loaders or other watchers run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from torch._C import _len_torch_dispatch_stack
from torch.nn import Module

from nabla_core.issue import Location
from nabla_core.records import Event

from ..layers.bank import Held
from ..layers.here import Here
from ..layers.roster import Chosen, chooser
from ..layers.watch import LayerWatch
from ..taps.backward import in_backward
from .inner import Again, Inner
from .mode import FIRST_SITE, Around
from .sites import OpRange, SiteTable

if TYPE_CHECKING:
    from ..loop.live import LiveLoop
    from ..options import GuardOptions
    from ..taps.inside import Inside

__all__ = ["DeepWatch", "watch_ops"]

_EVENTS_OF_A_SITE = 3
_EVENTS_OF_A_STEP = 1_000


class DeepWatch(LayerWatch):
    """Looks at every op of a step.

    Args:
        loop: the loop that is watched.
    """

    whole = True

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.table = SiteTable((), True)
        self._chosen: Chosen = chooser()
        self._extreme = math.inf
        self._told: dict[int, int] = {}
        self._left = 0

    def choose_ops(self, options: GuardOptions) -> None:
        """Say what to measure and what to note as an event."""
        self._chosen = chooser(options.modules, options.exclude)
        self.choose(self._chosen)
        self.table = SiteTable(options.operations, options.capture_source)
        self._extreme = options.extreme_value_threshold

    @property
    def operations(self) -> Sequence[OpRange]:
        """The ranges of ops over the whole run, in the order in which the ops were first seen."""
        return tuple(site for site in self.table.sites if site.calls)

    # ------------------------------------------------------------------ told by the loop
    def begin(self, root: Module) -> Inside | None:
        """See :class:`..taps.inside.Insider`."""
        inner = self.inner
        if in_backward():
            return Again(inner) if inner.mode.is_top else None
        inner.mode.leave()
        if not self.looks_into(root):
            return None
        inner.enter(root)
        return inner

    def root_over(self) -> None:
        """See :class:`..layers.watch.LayerWatch`."""
        self._enter(self.inner.loss)

    def backward_begins(self) -> None:
        """See :class:`..layers.watch.LayerWatch`."""
        self.inner.mode.leave()

    def backward_runs(self) -> None:
        """See :class:`..layers.watch.LayerWatch`."""
        self._enter(self.inner.backward)

    def backward_over(self) -> None:
        """See :class:`..layers.watch.LayerWatch`."""
        self.inner.mode.leave()
        super().backward_over()

    def cleared(self) -> None:
        """See :class:`..layers.watch.LayerWatch`."""
        self.inner.mode.leave()
        super().cleared()

    def step_begins(self) -> None:
        """See :class:`..layers.watch.LayerWatch`."""
        self.inner.mode.leave()

    def sort(self, held: Held) -> Held:
        """See :class:`..layers.watch.LayerWatch`."""
        layers = Held([], [])
        self._left = _EVENTS_OF_A_STEP
        values = iter(held.values)
        for owner, low, high in zip(held.owners, values, values, strict=True):
            if owner < FIRST_SITE:
                layers.owners.append(owner)
                layers.values += (low, high)
            else:
                self._note(owner - FIRST_SITE, low, high)
        return layers

    # ------------------------------------------------------------------ told by the threads
    def make_here(self) -> Here:
        """See :class:`..layers.watch.LayerWatch`."""
        return Inner(self)

    def place(self, root: Module | None, module: Module) -> Around:
        """Return where the ops of a module belong."""
        kind = type(module).__name__
        path = kind if root is None else self.roster.path(root, module)
        return Around(path, "forward", self._chosen(path, kind))

    # ------------------------------------------------------------------ private
    @property
    def inner(self) -> Inner:
        """What gathers in the calling thread."""
        return cast("Inner", self.here)

    def _enter(self, around: Around) -> None:
        inner = self.inner
        if self.loop.due and not _len_torch_dispatch_stack():
            inner.mode.around = around
            inner.mode.enter()

    def _note(self, number: int, low: float, high: float) -> None:
        site = self.table.sites[number]
        site.add(low, high)
        finite = -math.inf < low and high < math.inf  # false for NaN
        if finite and not self.table.operations and max(-low, high) < self._extreme:
            return
        if not high < math.inf and site.part != "backward" and -1 - number not in self.usual:
            self.odd.append(-1 - number)
        told = self._told.get(number, 0)
        if self._left and (self.table.operations or told < _EVENTS_OF_A_SITE):
            self._left -= 1
            self._told[number] = told + 1
            self._emit(site, low, high)

    def _emit(self, site: OpRange, low: float, high: float) -> None:
        session = self.loop.session
        place = site.place
        where = Location(
            module=site.module or None,
            op=site.op,
            file=place.file if place else None,
            line=place.line if place else None,
            function=place.function if place else None,
        )
        session.emit(
            Event(
                kind="operation",
                step=self.loop.index,
                time_s=session.clock() - session.started_s,
                name=site.op,
                values=(low, high),
                where=where,
            )
        )


def watch_ops(loop: LiveLoop, options: GuardOptions) -> DeepWatch:
    """Let a loop look at every op, from the moment at which it is connected.

    Args:
        loop: not connected yet.
        options: which ops, and which results are events.
    """
    watch = loop.watches.gather(DeepWatch)
    watch.choose_ops(options)
    loop.layers = watch
    return watch

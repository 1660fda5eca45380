"""The live instrument: one per process, shared by every loop that is being watched.

It hooks torch at its choke points (optimizer steps, the root of backward, root modules, clearing of
gradients) while at least one listener is attached, and removes everything with the last one. It
never
judges and never changes a value of the training.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..origin.keeper import Keeper
from .backward import BackwardTap
from .clipping import ClippingTap
from .forward import ForwardTap
from .functions import FunctionTap
from .hush import Hush
from .inside import Insider
from .listener import Listener
from .loading import LoadingTap
from .optimizers import OptimizerTap
from .patching import Patches
from .scaler import ScalerTap
from .warned import WarningTap
from .wire import Wire

if TYPE_CHECKING:
    from nabla_core.session import Session

    from ..loop.express import Express
    from ..loop.live import LiveLoop
    from ..options import GuardOptions
    from .wire import Derived

__all__ = ["INSTRUMENT", "Instrument", "watch_process"]


class Instrument:
    """Delivers what happens in torch to its listeners, in the order in which they were attached."""

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self.keeper = Keeper()
        self._lock = threading.RLock()
        self._patches = Patches()
        self._hush = Hush()
        self._lay_wire()

    @property
    def active(self) -> bool:
        """Whether anything of torch is hooked right now."""
        return bool(self._wire.listeners)

    @property
    def replaying(self) -> bool:
        """Whether the calling thread executes a step again: nothing of it may be counted."""
        return self.keeper.replaying

    def attach(self, listener: Listener) -> None:
        """Deliver to ``listener`` from now on; attaching twice is the same as once."""
        with self._lock:
            if listener in self._wire.listeners:
                return
            if not self._wire.listeners:
                self._install()
            self._wire.express = None
            self._wire.listeners = (*self._wire.listeners, listener)

    def detach(self, listener: Listener) -> None:
        """Stop delivering; with the last listener every hook and replacement is removed."""
        with self._lock:
            self._wire.express = None
            before = self._wire.listeners
            self._wire.listeners = tuple(known for known in before if known is not listener)
            if before and not self._wire.listeners:
                self._remove()

    def look_inside(self, insider: Insider) -> None:
        """Let ``insider`` look inside root modules, until the last listener is detached."""
        with self._lock:
            self._wire.express = None
            if insider not in self._wire.insiders:
                self._wire.insiders = (insider, *self._wire.insiders)

    def look_away(self, insider: Insider) -> None:
        """Stop what :meth:`look_inside` started."""
        with self._lock:
            self._wire.express = None
            known = self._wire.insiders
            self._wire.insiders = tuple(found for found in known if found is not insider)

    def has_only(self, listener: Listener) -> bool:
        """Whether nobody else is told anything."""
        return self._wire.listeners == (listener,)

    def let_through(self, express: Express | None) -> None:
        """Let ``express`` take over at the doors, until anybody is attached or detached.

        Args:
            express: ``None`` for the long way.
        """
        self._wire.express = express

    def tell_derivatives(self, derived: Derived | None) -> None:
        """Tell ``derived`` of derivatives that write no gradient; ``None`` tells nobody."""
        self._wire.derived = derived

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Tell nobody what happens inside the block: calls of ours are not the program's."""
        wire = self._wire
        wire.express = None
        listeners, wire.listeners = wire.listeners, ()
        try:
            yield
        finally:
            wire.listeners = listeners

    def drop(self, listener: Listener, error: Exception) -> None:
        """Take off a listener that raised, and tell it so; the training goes on."""
        try:
            listener.failed(error)
        finally:
            self.detach(listener)

    def _heal(self) -> None:
        self._forward.heal()
        if self.keeper.enabled:
            self.keeper.heal()

    def _lay_wire(self) -> None:
        self._wire = Wire(self.keeper, self.drop, self._heal)
        self._forward = ForwardTap(self._wire)
        self._optimizers = OptimizerTap(self._wire)

    def _install(self) -> None:
        self._hush.start()
        self._lay_wire()
        wire = self._wire
        kinds = (BackwardTap, ScalerTap, FunctionTap, ClippingTap, LoadingTap)
        taps = (self._forward, self._optimizers, WarningTap(), *(kind(wire) for kind in kinds))
        self.missing = tuple(name for tap in taps for name in tap.install(self._patches))

    def _remove(self) -> None:
        self.keeper.stop()
        self._patches.restore()
        self._forward.remove()
        self._optimizers.remove()
        self._wire.cut()
        self._hush.stop()


INSTRUMENT = Instrument()
"""The instrument of this process."""


@contextmanager
def watch_process(session: Session, options: GuardOptions | None = None) -> Iterator[LiveLoop]:
    """Watch every training loop of the process for ``session`` until the block ends.

    Models and optimizers are found by themselves, also those made later. The session must not be
    connected to a source yet; it is connected here, its detectors are made, and it is left open.

    Args:
        session: receives the step records; its exceptions and those of the block pass untouched.
        options: how to watch; by default what is configured for the session.

    Yields:
        The loop, whose facts detectors read.
    """
    from ..arming import arm, options_of
    from ..loop.live import LiveLoop

    chosen = options or options_of(session)
    loop = LiveLoop(session, on_nonfinite=chosen.on_nonfinite)
    arm(loop, chosen)
    INSTRUMENT.attach(loop)
    try:
        loop.connect()
        yield loop
    finally:
        loop.watches.stop()  # what they replaced lies on top of the instrument's own
        INSTRUMENT.detach(loop)
        loop.close()

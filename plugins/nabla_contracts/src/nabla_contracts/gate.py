"""Around each optimizer step: where a broken contract ends the run, and changes are measured.

The hooks of torch that this registers run after those of the live instrument, so the step is closed
and judged when they run, and the optimizer has not acted yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from nabla_guard.loop.watch import Watch

from .violation import ContractViolation

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord
    from nabla_guard.loop.live import LiveLoop
    from nabla_guard.taps.patching import Patches

__all__ = ["StepGate", "StepListener"]


class StepListener(Protocol):
    """Wants to see the parameters before and after a step."""

    def before_step(self, record: OptimizerRecord, step: int) -> None:
        """``record``'s optimizer is about to act, or with a closure, to run."""

    def after_step(self, record: OptimizerRecord, step: int) -> None:
        """It has acted."""


class StepGate(Watch):
    """One per loop; made only for contracts that raise or look at changes.

    Args:
        loop: the loop that is watched.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._handles: list[RemovableHandle] = []
        self._listeners: list[StepListener] = []
        self._violation: ContractViolation | None = None
        self._open: OptimizerRecord | None = None

    def hear(self, listener: StepListener) -> None:
        """Tell ``listener`` about steps from now on."""
        self._listeners.append(listener)

    def raise_soon(self, violation: ContractViolation) -> None:
        """Raise at the hook that comes next; of several violations the first."""
        self._violation = self._violation or violation

    def start(self, patches: Patches) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def stop(self) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._violation = self._open = None

    # ------------------------------------------------------------------ private
    def _before(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        self._obey()
        if self._listeners:
            self.guarded(lambda: self._begin(optimizer))

    def _after(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if self._open is not None and self._open.ref() is optimizer:
            self.guarded(self._end)
        self._obey()

    def _begin(self, optimizer: Optimizer) -> None:
        record = self.loop.pending.record
        if record is None or record.ref() is not optimizer or not record.judged:
            return  # not watched, or a step inside the step of another optimizer
        self._open = record
        for listener in self._listeners:
            listener.before_step(record, self.loop.index)

    def _end(self) -> None:
        record, self._open = self._open, None
        if record is not None:
            for listener in self._listeners:
                listener.after_step(record, self.loop.index)

    def _obey(self) -> None:
        violation, self._violation = self._violation, None
        if violation is not None:
            raise violation

"""Whether somebody else decides what a graph saves, so that reading it would run their code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["SavedHooksWatch"]


class SavedHooksWatch(Watch):
    """Notices saved-tensor hooks: activation checkpoints, offloading, compression.

    Attributes:
        hooked: such hooks were in use since the last step.
    """

    patient = EVERY_EVENT  # until the next full step ``hooked`` may stay true

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.hooked = False

    def start(self, patches: Patches) -> None:
        """Follow the context manager that every user of such hooks enters."""
        patches.replace(torch.autograd.graph.saved_tensors_hooks, "__enter__", self._wrap)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Start a new step."""
        self.hooked = False

    def _wrap(self, original: Replacement) -> Replacement:
        def enter(hooks: object) -> object:
            self.hooked = True
            return original(hooks)

        return enter

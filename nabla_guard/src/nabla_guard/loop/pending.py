"""What one thread has done since its last optimizer step."""

from __future__ import annotations

import threading

from torch import Tensor

from ..facts import NumberFacts
from .book import OptimizerRecord
from .traffic import Traffic

__all__ = ["Pending"]


class Pending(threading.local):
    """What happened in this thread since its last step.

    Attributes:
        traffic: what went through root modules.
        scaled: a loss, and what a gradient scaler made of it.
        record: the optimizer that is stepping.
        numbers: those of an evaluation inside a step that was not finite.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.scaled: tuple[Tensor, Tensor] | None = None
        self.record: OptimizerRecord | None = None
        self.numbers: NumberFacts | None = None

    def loss(self, root: Tensor) -> Tensor:
        """Return the scalar root of a backward pass, before loss scaling."""
        scaled, self.scaled = self.scaled, None
        if scaled is not None and scaled[1] is root:
            return scaled[0].reshape(())
        return root.detach().reshape(())

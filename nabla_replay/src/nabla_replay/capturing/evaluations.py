"""What a program does to its model between two steps that it records by hand.

Calls without gradients may draw random numbers that belong to no step, and another state may be
put into the model. Where steps are seen by themselves, the instrument tells of both; a program that
says itself when a step is over is watched up to the first call with gradients only.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from .calls import CallHook
from .parts import Parts

__all__ = ["Evaluations", "Seen"]


class Seen(NamedTuple):
    """What was seen between two steps.

    Attributes:
        calls: of the model or a part of it, without gradients.
        writes: whether its weights were written to.
    """

    calls: int = 0
    writes: bool = False


_NOTHING = Seen()


class Evaluations:
    """Sees what happens from the end of a step to the first call with gradients in the next.

    What is the same in every step is part of the step, and no news.

    Args:
        parts: the program; nothing is seen of a compiled one.

    Attributes:
        seen: before this step.
        usual: what was seen before the last one.
    """

    def __init__(self, parts: Parts) -> None:
        self._can_see = not parts.wrappers
        self._calls = CallHook(parts, self._called)
        self._weight = next((one for one in parts.model.parameters() if one.requires_grad), None)
        self.seen = self.usual = _NOTHING
        self._count = self._version = 0

    def wait(self) -> None:
        """A step is over: see what happens until the next one begins.

        Where no call was seen since the last time, it is called in a way that no hook sees, such as
        compiled, and a hook that comes and goes would have it compiled anew.
        """
        if self._calls.is_on:
            self._can_see = False
            self._calls.turn_off()
        self._count = 0
        self.seen = _NOTHING
        weight = self._weight
        self._version = 0 if weight is None else weight._version
        if self._can_see:
            self._calls.turn_on()

    def settle(self) -> Seen:
        """A step is over: return what was seen before it; nothing if it was as usual."""
        usual, self.usual = self.usual, self.seen
        return _NOTHING if self.seen == usual else self.seen

    def stop(self) -> int:
        """Let go of torch; return how many calls without gradients there were."""
        self._calls.turn_off()
        self._weight = None
        return self._count

    def _called(self, module: Module) -> None:
        if not torch.is_grad_enabled():
            self._count += 1
            return
        self._calls.turn_off()
        writes = _version(self._weight) != self._version
        if self._count or writes:
            self.seen = Seen(self._count, writes)


def _version(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor._version

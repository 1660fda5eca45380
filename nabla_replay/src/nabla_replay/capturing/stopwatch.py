"""How long a step of the program takes, without what happens between two steps."""

from __future__ import annotations

from collections.abc import Callable

from torch.nn import Module

from .calls import CallHook
from .parts import Parts

__all__ = ["Stopwatch"]

_CALIBRATION_STEPS = 6


class Stopwatch:
    """Times steps from the first call of the model to the record of the step.

    What lies between two steps (evaluation, another program, waiting for data) is nothing that
    recording may be charged to. The call is seen by a global hook, which slows every module down a
    little: it is there for the first few steps only, and then scales what the clock says.

    Args:
        parts: the program; a call of its model begins a step.
        clock: monotonic seconds; reading it is a call of the kernel.

    Attributes:
        sees_calls: whether a call was seen: those of a model that is compiled elsewhere are not.
    """

    def __init__(self, parts: Parts, clock: Callable[[], float]) -> None:
        self._model = parts.model
        self._clock = clock
        self.sees_calls = False
        self._left = _CALIBRATION_STEPS
        self._calls = CallHook(parts, self._called)
        self._began_s: float | None = None
        self._recorded_s = clock()
        self._inner_s = self._outer_s = 0.0

    def start(self) -> None:
        """Begin to see the calls of the model."""
        self._calls.turn_on()
        self._recorded_s = self._clock()

    def stop(self) -> None:
        """Let go of torch."""
        self._calls.turn_off()

    def lap(self, now_s: float) -> float:
        """A step is over: return its seconds."""
        whole_s = now_s - self._recorded_s
        if not self._calls.is_on:
            return whole_s * (self._inner_s / self._outer_s if self._outer_s else 1.0)
        began_s, self._began_s = self._began_s, None
        inner_s = whole_s if began_s is None else now_s - began_s
        self._left -= 1
        self._inner_s += inner_s
        self._outer_s += whole_s
        if self._left <= 0:
            self.stop()
        return inner_s

    def resume(self, now_s: float) -> None:
        """Recording is over: the next step may begin."""
        self._recorded_s = now_s
        self._began_s = None

    def _called(self, module: Module) -> None:
        self.sees_calls = True
        if module is self._model and self._began_s is None:
            self._began_s = self._clock()

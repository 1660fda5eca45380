"""When a layer left its usual scale: compared with its own recent past, in powers of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from .frames import GRADIENTS, OUTPUTS, Frames

__all__ = ["Onset", "Quantity", "State", "onsets"]

State = Literal["exploding", "shrinking", "zero", "non-finite"]
Quantity = Literal["outputs", "gradients"]

_BEFORE = 32
_FEWEST_BEFORE = 4
_RISE = 3.0
_FALL = 6.0
_SPREADS = 6.0
_LEAST_SPREAD = 0.25
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """A layer left its usual scale.

    Attributes:
        layer: its place in the layout.
        quantity: of its outputs or of their gradients.
        state: what it became.
        step: 0-based optimizer step.
        before: usual largest magnitude; 0 where it was never anything else.
        after: largest magnitude in that step.
        octaves: powers of two between them; infinite for zeros and what is not finite.
    """

    layer: int
    quantity: Quantity
    state: State
    step: int
    before: float
    after: float
    octaves: float

    @property
    def order(self) -> tuple[int, int, int]:
        """Place in the causal order of a run: the step, forward before backward, in their order."""
        if self.quantity == OUTPUTS:
            return (self.step, 0, self.layer)
        return (self.step, 1, -self.layer)


def onsets(frames: Frames) -> list[Onset]:
    """Return the first time at which each layer left its scale, in causal order.

    A layer has left it when its largest magnitude rose by a factor of 8 (fell by one of 64) and by
    six robust deviations over the median of up to 32 earlier steps, of which there are at least
    four; when it became exactly zero; or when it is not finite. A layer that never was anything
    else has an onset in the first step, if that is the first of the run.
    """
    found = []
    quantities: tuple[Quantity, ...] = (OUTPUTS, GRADIENTS)
    for quantity in quantities:
        for layer in range(len(frames.layout)):
            onset = _onset(frames.history(quantity, layer), layer, quantity)
            if onset is not None and (onset.before > 0.0 or frames.from_the_start):
                found.append(onset)
    return sorted(found, key=lambda onset: onset.order)


def _onset(history: Sequence[tuple[int, float]], layer: int, quantity: Quantity) -> Onset | None:
    if len(history) >= _FEWEST_BEFORE and all(value == 0.0 for _, value in history):
        step = history[0][0]
        return _make(layer, quantity, "zero", (step, 0.0), 0.0)
    past: list[float] = []
    for step, value in history:
        state = _state(value, past)
        if state is not None:
            return _make(layer, quantity, state, (step, value), _usual(past))
        if value > 0.0:
            past.append(math.log2(value))
    return None


def _state(value: float, past: Sequence[float]) -> State | None:
    """What a value is beside the logarithms of those before it."""
    if not value < math.inf:
        return "non-finite"
    if len(past) < _FEWEST_BEFORE:
        return None
    if value == 0.0:
        return "zero"
    recent = past[-_BEFORE:]
    middle = median(recent)
    spread = _MAD_TO_SIGMA * median(abs(one - middle) for one in recent)
    moved, limit = math.log2(value) - middle, _SPREADS * max(spread, _LEAST_SPREAD)
    if moved > max(_RISE, limit):
        return "exploding"
    return "shrinking" if moved < -max(_FALL, limit) else None


def _usual(past: Sequence[float]) -> float:
    return float(2.0 ** median(past[-_BEFORE:])) if past else 0.0


def _make(
    layer: int, quantity: Quantity, state: State, at: tuple[int, float], before: float
) -> Onset:
    step, after = at
    finite = 0.0 < after < math.inf and before > 0.0
    return Onset(
        layer=layer,
        quantity=quantity,
        state=state,
        step=step,
        before=before,
        after=after,
        octaves=math.log2(after / before) if finite else math.inf,
    )

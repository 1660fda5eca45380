"""The ranges of the layers in the steps before something was found, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["GRADIENTS", "OUTPUTS", "Frame", "Frames", "largest"]

OUTPUTS: Final = "outputs"
GRADIENTS: Final = "gradients"
"""The two quantities of a layer: what it returns, and the gradient of that."""

ABSENT = -1.0
"""Stands for a layer that was not measured in a step; magnitudes are never negative."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step.

    Attributes:
        step: 0-based optimizer step.
        outputs: largest magnitude of each layer's outputs, in the order of the layout;
            infinite where a value is NaN or infinite, :data:`ABSENT` where nothing was measured.
        gradients: the same of the gradients of these outputs.
        lows: smallest output of each layer, as measured; empty where nobody asked for it.
        highs: largest output of each layer, likewise.
    """

    step: int
    outputs: Sequence[float]
    gradients: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()

    def values(self, quantity: str) -> Sequence[float]:
        """Return one of the two quantities."""
        return self.outputs if quantity == OUTPUTS else self.gradients


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive steps.

    Attributes:
        layout: names of the layers, in the order in which they run.
        steps: the oldest first.
    """

    layout: tuple[str, ...]
    steps: tuple[Frame, ...]

    @property
    def from_the_start(self) -> bool:
        """Whether the first step of the run is among them."""
        return bool(self.steps) and self.steps[0].step == 0

    def history(self, quantity: str, layer: int) -> list[tuple[int, float]]:
        """Return the steps in which a layer was measured, with the magnitudes."""
        found = []
        for frame in self.steps:
            values = frame.values(quantity)
            if layer < len(values) and values[layer] >= 0.0:
                found.append((frame.step, values[layer]))
        return found


def largest(ranges: Mapping[str, Sequence[float]], low: str, high: str) -> list[float]:
    """Return the largest magnitude of each layer from the minima and maxima of a step.

    Args:
        ranges: arrays by name, each along the layout; an empty range is ``inf`` to ``-inf``.
        low: name of the minima.
        high: name of the maxima.
    """
    return [
        _magnitude(smallest, greatest)
        for smallest, greatest in zip(ranges.get(low, ()), ranges.get(high, ()), strict=True)
    ]


def _magnitude(low: float, high: float) -> float:
    if low == math.inf and high == -math.inf:
        return ABSENT
    found = max(abs(low), abs(high))
    # max() may pass over a NaN, a comparison with it never holds
    return found if low <= high and found < math.inf else math.inf

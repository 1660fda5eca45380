"""Axes of a drawing: from numbers to places, and ticks at round numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from nabla_core.plots import Scale

__all__ = ["Axis", "number_label"]

_MOST_TICKS = 6
_SMALLEST = 5e-324


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range of numbers on a range of pixels.

    Attributes:
        low: smallest number shown.
        high: largest number shown.
        start: pixel of ``low``.
        stop: pixel of ``high``.
        scale: ``log`` places powers of ten at equal distances.
    """

    low: float
    high: float
    start: float
    stop: float
    scale: Scale = "linear"

    @classmethod
    def over(
        cls, values: Iterable[float], pixels: tuple[float, float], scale: Scale = "linear"
    ) -> Axis:
        """Return an axis that holds all finite values; one on a log scale only positive ones."""
        shown = [value for value in values if math.isfinite(value)]
        if scale == "log":
            shown = [value for value in shown if value > 0.0]
        low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
        if scale == "signed":
            high = max(abs(low), abs(high))
            low = -high
        if scale == "log" and not shown:
            low = 0.1
        if low == high:
            low, high = _widened(low, scale)
        return cls(low=low, high=high, start=pixels[0], stop=pixels[1], scale=scale)

    def shows(self, value: float) -> bool:
        """Whether ``value`` has a place."""
        return math.isfinite(value) and (self.scale != "log" or value > 0.0)

    def share(self, value: float) -> float:
        """Return where ``value`` lies between low (0) and high (1)."""
        if self.scale == "log":
            reach = math.log10(self.high) - math.log10(self.low)
            return (math.log10(value) - math.log10(self.low)) / reach
        half = self.high / 2 - self.low / 2  # halves: the whole reach may overflow
        return (value / 2 - self.low / 2) / half

    def at(self, value: float) -> float:
        """Return the pixel of ``value``."""
        return self.start + self.share(value) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Return a few round numbers within the range."""
        return _powers(self.low, self.high) if self.scale == "log" else _round(self.low, self.high)


def number_label(value: float) -> str:
    """Return a short spelling of a number."""
    return f"{value:.4g}"


def _widened(value: float, scale: Scale) -> tuple[float, float]:
    if scale == "log":
        return max(value / 2, _SMALLEST), min(value * 2, sys.float_info.max)
    room = abs(value) / 2 or 1.0
    return max(value - room, -sys.float_info.max), min(value + room, sys.float_info.max)


def _round(low: float, high: float) -> list[float]:
    rough = (high / _MOST_TICKS) - (low / _MOST_TICKS)
    if not 0.0 < rough < math.inf:
        return [low]
    size = 10.0 ** math.floor(math.log10(rough))
    if size == 0.0:
        return [low]  # numbers so small that no step between them can be spelled
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = range(first, last + 1)
    if len(powers) < 2:
        return [low, high]
    return [10.0**power for power in powers[:: -(-len(powers) // _MOST_TICKS)]]

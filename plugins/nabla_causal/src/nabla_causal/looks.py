"""Close looks that have to agree: each judges the last one, and says whether it wants another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from nabla_core.issue import Issue

from .depth import LOOKS, Faded, faded, fading, fading_since, saturated, saturation
from .frames import Frame, Frames, largest
from .trail import Ranges, RangeSource

__all__ = ["EndsLook", "FadingLook", "Nearer"]

_AT_END = 0.99


class Nearer(Protocol):
    """Measures a step closely when it is asked to; see :class:`.closeup.Closeup`."""

    wants_gradients: bool
    gradients: Mapping[str, float]

    @property
    def ends(self) -> Mapping[str, float]:
        """Share of the outputs at the ends of their range, by layer."""

    def listen_to(self, layers: Sequence[str]) -> None:
        """Measure these layers in the next step."""


class FadingLook:
    """Gradients against weights, once those of the outputs fall on their way to the front."""

    def __init__(self, nearer: Nearer, layers: RangeSource) -> None:
        self._nearer, self._layers = nearer, layers
        self._found: list[Faded] = []
        self._since = 0

    def judge(self) -> Iterator[Issue]:
        """Yield the issue when enough looks agree; otherwise ask for another if need be."""
        nearer = self._nearer
        since = self._fading_since()
        found = faded(nearer.gradients, self._layers.layout)
        nearer.gradients, nearer.wants_gradients = {}, since is not None
        self._found = [*self._found, found] if found else []
        if since is not None and not self._found:
            self._since = since
        if len(self._found) >= LOOKS:
            yield fading(self._found[-1], self._since)

    def _fading_since(self) -> int | None:
        if fading_since(Frames((), (_frame(0, self._layers.ranges),))) is None:
            return None
        return fading_since(Frames((), tuple(_frame(*one) for one in self._layers.recent)))


class EndsLook:
    """Outputs of tanh and sigmoid layers, once they reach both ends of the range."""

    def __init__(self, nearer: Nearer, layers: RangeSource) -> None:
        self._nearer, self._layers = nearer, layers
        self._found: list[str] = []

    def judge(self) -> Iterator[Issue]:
        """Yield the issue when enough looks agree; otherwise ask for another if need be."""
        nearer, layout = self._nearer, self._layers.layout
        shares = {layer: float(share) for layer, share in nearer.ends.items()}
        found = saturated(shares, layout)
        self._found = [*self._found, found] if found else []
        if found and self._found[-LOOKS:] == [found] * LOOKS:
            yield saturation(found, shares[found], self._since(found))
            return
        odd = [name for place, name in enumerate(layout) if _at_ends(self._layers.ranges, place)]
        if odd or shares:
            nearer.listen_to(odd)

    def _since(self, layer: str) -> int:
        """Return the step from which on the layer reached both ends."""
        place, since = self._layers.layout.index(layer), 0
        for step, ranges in reversed(tuple(self._layers.recent)):
            if not _at_ends(ranges, place):
                break
            since = step
        return since


def _frame(step: int, ranges: Ranges) -> Frame:
    return Frame(step, (), largest(ranges, "grad_out_min", "grad_out_max"))


def _at_ends(ranges: Ranges, place: int) -> bool:
    lows, highs = ranges.get("out_min", ()), ranges.get("out_max", ())
    if place >= min(len(lows), len(highs)):
        return False
    low, high = lows[place], highs[place]
    return any(
        -1.0 <= bottom < -_AT_END and _AT_END < top <= 1.0
        for bottom, top in ((low, high), (2.0 * low - 1.0, 2.0 * high - 1.0))
    )

"""Colours of a heat map: dark to bright for sizes, blue over white to red for signs.

Anchors: viridis (CC0) and the red-blue scheme of ColorBrewer; both are told apart by people who see
fewer colours.
"""

from __future__ import annotations

from collections.abc import Sequence

from nabla_core.plots import Scale

__all__ = ["LEVELS", "MISSING", "anchors", "ink", "palette"]

Colour = tuple[int, int, int]

LEVELS = 255
"""Number of colours; the index after the last one stands for what was not measured."""

MISSING = LEVELS

_SIZES: Sequence[Colour] = (
    (68, 1, 84),
    (59, 82, 139),
    (33, 145, 140),
    (94, 201, 98),
    (253, 231, 37),
)
_SIGNS: Sequence[Colour] = (
    (33, 102, 172),
    (146, 197, 222),
    (247, 247, 247),
    (244, 165, 130),
    (178, 24, 43),
)


def anchors(scale: Scale) -> Sequence[Colour]:
    """Return the colours between which the others lie."""
    return _SIGNS if scale == "signed" else _SIZES


def palette(scale: Scale) -> list[Colour]:
    """Return all colours, and one for what was not measured."""
    return [_between(anchors(scale), level / (LEVELS - 1)) for level in range(LEVELS)] + [(0, 0, 0)]


def ink(colour: Colour) -> str:
    """Return black or white, whichever is read better on ``colour``."""
    brightness = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    return "#000" if brightness > 140 else "#fff"


def _between(known: Sequence[Colour], share: float) -> Colour:
    place = share * (len(known) - 1)
    index = min(int(place), len(known) - 2)
    part = place - index
    low, high = known[index], known[index + 1]
    mixed = [round(a + (b - a) * part) for a, b in zip(low, high, strict=True)]
    return mixed[0], mixed[1], mixed[2]

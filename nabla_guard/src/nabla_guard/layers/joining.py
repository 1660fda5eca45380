"""Joins what the banks held at the end of a step into one array per measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .bank import Held

__all__ = ["ARRAYS", "Ranges", "joined"]

ARRAYS = ("out_min", "out_max", "grad_out_min", "grad_out_max")
"""Names of the arrays of a step, each aligned with the layout; see :attr:`.LayerWatch.ranges`."""


def joined(step: Iterable[Held], size: int) -> dict[str, list[float]]:
    """Return the arrays of a step by name; empty when nothing was held.

    Args:
        step: what the banks held; owners are ``2 * layer`` for an output, one more for a gradient.
        size: number of layers.
    """
    lows = [math.inf] * (2 * size)
    highs = [-math.inf] * (2 * size)
    empty = True
    for held in step:
        empty = False
        values = iter(held.values)
        for owner, low, high in zip(held.owners, values, values, strict=True):
            if not low >= lows[owner]:  # true for NaN
                lows[owner] = low if lows[owner] == lows[owner] else math.nan
            if not high <= highs[owner]:
                highs[owner] = high if highs[owner] == highs[owner] else math.nan
    arrays = (lows[0::2], highs[0::2], lows[1::2], highs[1::2])
    return {} if empty else dict(zip(ARRAYS, arrays, strict=True))


class Ranges(Mapping[str, list[float]]):
    """The arrays of a step, joined when somebody reads one of them: most steps nobody does.

    Args:
        step: what the banks held.
        size: number of layers.
    """

    __slots__ = ("_arrays", "_size", "_step")

    def __init__(self, step: Sequence[Held], size: int) -> None:
        self._step = step
        self._size = size
        self._arrays: dict[str, list[float]] | None = None

    def __getitem__(self, name: str) -> list[float]:
        if self._arrays is None:
            self._arrays = joined(self._step, self._size)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ARRAYS if self._step else ())

    def __len__(self) -> int:
        return len(ARRAYS) if self._step else 0

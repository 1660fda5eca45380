"""Where the losses lie at present, and how much they vary from row to row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from .robust import NORMAL, roughness, spread

__all__ = ["CALM_ROWS", "Level"]

CALM_ROWS = 40
_MIDDLE = CALM_ROWS // 2
_QUARTER = CALM_ROWS // 4


class Level:
    """Where the losses of the last forty rows lie, as of a completed block.

    Each number is worked out when somebody asks for it: most blocks need one or two.

    Args:
        blocks: the losses of four blocks, in the order of the rows.
        ordered: the same, each block sorted.
    """

    __slots__ = ("_blocks", "_noise", "_ordered", "_sorted", "highest", "lowest")

    def __init__(
        self, blocks: Sequence[Sequence[float]], ordered: Sequence[Sequence[float]]
    ) -> None:
        self._blocks, self._ordered = blocks, ordered
        self._sorted: list[float] = []
        self._noise: float | None = None
        first, second, third, last = ordered
        self.highest = max(first[-1], second[-1], third[-1], last[-1])
        self.lowest = min(first[0], second[0], third[0], last[0])

    @property
    def median(self) -> float:
        """Their median."""
        ordered = self._sorted or self._sort()
        return 0.5 * (ordered[_MIDDLE - 1] + ordered[_MIDDLE])

    @property
    def least_noise(self) -> float:
        """A number that their noise is not below, known from their median on.

        Of the deviations from the median, at most 18 are below that of the eleventh loss or that of
        the eleventh from above, whichever is smaller: so the median deviation is not.
        """
        ordered, centre = self._sorted or self._sort(), self.median
        return NORMAL * min(centre - ordered[_QUARTER], ordered[-_QUARTER - 1] - centre)

    @property
    def noise(self) -> float:
        """Their spread, or their noise from row to row if that is larger."""
        if self._noise is None:
            losses = self._losses
            self._noise = max(spread(losses, self.median), roughness(losses))
        return self._noise

    @property
    def _losses(self) -> list[float]:
        return list(chain.from_iterable(self._blocks))

    def _sort(self) -> list[float]:
        self._sorted = sorted(chain.from_iterable(self._ordered))
        return self._sorted

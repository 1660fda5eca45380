"""A cheap look at whether losses may repeat themselves, before the one that decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import sub, truediv

from ..chart import BLOCK_ROWS
from ..robust import median, swift_autocorrelation, swift_products

__all__ = ["changes_may_repeat", "may_repeat"]

_AROUND = 5
"""Blocks before and after that of a row whose median is its level."""
_MARGIN = 0.2
"""By how much these correlations may be off where the others decide; see the tests."""
_CHANGES_MARGIN = 0.1
"""The same of changes from row to row: their level hardly matters."""


def changes_may_repeat(losses: Sequence[float], periods: range, limit: float) -> bool:
    """Whether the changes from row to row may correlate with themselves a period later.

    Those of a loss that falls through noise do not, so that this look is the one most runs fail.

    Args:
        losses: ``[T]`` rows.
        periods: rows after which they may come back; the last one at most ``T / 3``.
        limit: correlation at the period, at least.
    """
    count, start, stop = len(losses) - 1, periods.start, periods.stop
    products = swift_products(list(map(sub, losses[1:], losses)), stop)
    overlaps = range(count - start, count - stop, -1)
    highest: float = max(map(truediv, products[start:], overlaps))
    return highest * count >= (limit - _CHANGES_MARGIN) * (products[0] or 1)


def may_repeat(
    losses: Sequence[float], levels: Sequence[float], periods: range, limit: float, valley: float
) -> bool:
    """Whether losses may correlate with themselves a period later, and not between.

    Their level is taken from blocks and the sums from rounded numbers: that costs a tenth.

    Args:
        losses: ``[T]`` rows, in whole blocks.
        levels: ``[T / 10]`` medians of the blocks.
        periods: rows after which they may come back; the last one at most ``T / 3``.
        limit: correlation at the period, at least.
        valley: correlation somewhere before the period, at most.
    """
    found = swift_autocorrelation(_without_level(losses, levels), periods.stop)
    lowest = min(found[3 : periods.start])
    for period in periods:
        if found[period] >= limit - _MARGIN and lowest <= valley + _MARGIN:
            return True
        lowest = min(lowest, found[period])
    return False


def _without_level(losses: Sequence[float], levels: Sequence[float]) -> list[float]:
    """Return the losses minus the median of the blocks around them."""
    around = [
        median(levels[max(0, place - _AROUND) : place + _AROUND + 1])
        for place in range(len(levels))
    ]
    level = chain.from_iterable(map(repeat, around, repeat(BLOCK_ROWS)))
    return list(map(sub, losses, level))

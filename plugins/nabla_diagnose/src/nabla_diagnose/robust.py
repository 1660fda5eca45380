"""Robust statistics of short sequences: they stream in bounded memory and ignore outliers."""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

__all__ = [
    "NORMAL",
    "autocorrelation",
    "comes_back",
    "is_averaged",
    "mann_kendall",
    "median",
    "median_residuals",
    "roughness",
    "spread",
    "swift_autocorrelation",
    "swift_products",
]

NORMAL = 1.4826
"""Median absolute deviation to standard deviation, for normal noise."""
_STAYS = 0.7
"""Share of a rise that its second half still has, where it stays; averages over ten rows keep less
of one row after five."""
_TURNS = 0.58
"""Share of the rows at which the loss turns: two thirds of independent ones, half of averages."""
_NEAR_ROWS = 20
_ROUNDED_LENGTH = math.sqrt(27_000.0)
_LEAST_LENGTH = 1e-150
_LAST_BITS = 1.5 * 2.0**52
"""Beside it, the last bit of a number counts ones."""


def median(values: Sequence[float]) -> float:
    """Return the median.

    Raises:
        IndexError: ``values`` is empty.
    """
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return 0.5 * (ordered[middle - 1] + ordered[middle])


def spread(values: Sequence[float], centre: float | None = None) -> float:
    """Return the standard deviation as the median absolute deviation estimates it."""
    middle = median(values) if centre is None else centre
    return NORMAL * median([abs(value - middle) for value in values])


def roughness(values: Sequence[float]) -> float:
    """Return the standard deviation of the noise, whatever the trend, from second differences.

    Zero for fewer than three values.
    """
    if len(values) < 3:
        return 0.0
    bends = [
        abs(left - 2.0 * middle + right)
        for left, middle, right in zip(values, values[1:], values[2:], strict=False)
    ]
    return NORMAL * median(bends) / math.sqrt(6.0)


def median_residuals(values: Sequence[float], half: int) -> list[float]:
    """Return the values minus their running median over ``2 * half + 1`` rows, fewer at the ends.

    Args:
        values: ``[T]`` numbers, none of them NaN.
        half: rows before and after a row that belong to its window.
    """
    window = sorted(values[:half])
    found = []
    for place, value in enumerate(values):
        if place + half < len(values):
            insort(window, values[place + half])
        if place > half:
            del window[bisect_left(window, values[place - half - 1])]
        middle = len(window) // 2
        centre = window[middle] if len(window) % 2 else 0.5 * (window[middle - 1] + window[middle])
        found.append(value - centre)
    return found


def is_averaged(values: Sequence[float]) -> bool:
    """Whether neighbours are alike, as in averages over many rows: the values turn too seldom.

    ``False`` for fewer than three values.
    """
    turns = [
        (middle - left) * (right - middle) < 0.0
        for left, middle, right in zip(values, values[1:], values[2:], strict=False)
    ]
    return bool(turns) and sum(turns) <= _TURNS * len(turns)


def comes_back(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether an average of many rows is on its way back from what one row did to it.

    A loss of single rows is not: of a bad batch nothing is left in the next row, and a loss that
    falls again has been learnt anew.

    Args:
        before: rows up to the rise.
        after: rows of the rise.
    """
    half = len(after) // 2
    if not half or not is_averaged(before):
        return False
    level = median(before[-_NEAR_ROWS:])
    return median(after[-half:]) - level < _STAYS * (median(after[:half]) - level)


def mann_kendall(values: Sequence[float]) -> float:
    """Return the z-score of a monotone trend; negative when the values fall.

    Quadratic in the length: give it at most some sixty values.
    """
    count = len(values)
    variance = count * (count - 1) * (2 * count + 5) / 18.0
    if variance <= 0.0:
        return 0.0
    score = 0
    for place, value in enumerate(values):
        for later in values[place + 1 :]:
            score += (later > value) - (later < value)
    return (score - (score > 0) + (score < 0)) / math.sqrt(variance)


def autocorrelation(values: Sequence[float], lags: range) -> dict[int, float]:
    """Return the autocorrelation at each lag, corrected for the shorter overlap."""
    count = len(values)
    power = sum(map(mul, values, values)) or 1e-300
    return {
        lag: sum(map(mul, values, values[lag:])) / power * count / (count - lag)
        for lag in lags
        if 0 <= lag < count
    }


def swift_autocorrelation(values: Sequence[float], lags: int) -> list[float]:
    """Return :func:`autocorrelation` at the lags below ``lags``, to within some hundredths.

    Args:
        values: at most a thousand numbers.
        lags: how many lags, from 0 on; at most as many as there are values.

    Returns:
        Zeros where the sum of the squares is next to zero or to infinity.
    """
    products, count = swift_products(values, lags), len(values)
    scale = count / (products[0] or 1)
    return [scale * product / (count - lag) for lag, product in enumerate(products)]


def swift_products(values: Sequence[float], lags: int) -> Sequence[int]:
    """Return the sums of the products at the lags below ``lags``, in some unit.

    The values are rounded and written side by side into one long integer; the digits of its product
    with its mirror image are the sums at all lags (Kronecker's substitution).

    Args:
        values: at most a thousand numbers: their rounded squares add up to less than 2 ** 15.
        lags: how many lags, from 0 on; at most as many as there are values.

    Returns:
        Zeros where the sum of the squares is next to zero or to infinity.
    """
    count, length = len(values), math.hypot(*values)
    if not _LEAST_LENGTH < length < 1.0 / _LEAST_LENGTH:
        return [0] * lags
    # such a sum is rounded to whole units, and its last bits count them
    base = _LAST_BITS * math.ldexp(1.0, math.frexp(length / _ROUNDED_LENGTH)[1])
    sums = array("d", [value + base for value in values])
    if sys.byteorder == "big":
        sums.byteswap()
    rounded = array("H", sums.tobytes())[::4]
    product = _number(rounded) * _number(rounded[::-1])
    signs = _signs(2 * count)
    products = array("h", ((product + signs) ^ signs).to_bytes(4 * count, "little"))
    if sys.byteorder == "big":
        products.byteswap()
    return products[count - 1 : count - 1 + lags]


def _number(digits: array[int]) -> int:
    """Return the sum of ``digits[i] * 2 ** (16 * i)``; the digits stand for signed numbers."""
    signs = _signs(len(digits))
    return (int.from_bytes(digits.tobytes(), "little") ^ signs) - signs


@lru_cache(maxsize=16)
def _signs(count: int) -> int:
    """Return the highest bits of so many digits; with them flipped, none is negative."""
    return int.from_bytes(b"\x00\x80" * count, "little")

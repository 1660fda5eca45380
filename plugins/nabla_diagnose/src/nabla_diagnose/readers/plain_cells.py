"""Cells of plain numbers, parsed a column at a time, eight characters at once.

A number of at most 15 digits and a power of ten up to 22 are both exact as floats, so that their
quotient is the float that is nearest to the number as written: the same one that ``float`` gives.
Source: W. D. Clinger, How to Read Floating Point Numbers Accurately, 1990, the fast case. The
digits of a word are added up in three multiplications, as in D. Lemire's fast_float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .number import parse_cell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Places = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Flags = NDArray[np.bool_]

__all__ = ["PlainColumn", "plain_columns"]

_PLAIN = b"0123456789.-+eE\n"
_NEWLINE, _MINUS, _EXPONENT = b"\n-e"
_PADDING = b"0" * 16
_MOST_DIGITS = 15
_MOST_DECIMALS = 22
_WORD = 8
_EACH = 0x0101010101010101

Numbers = list[float | None]


class PlainColumn(NamedTuple):
    """The numbers of one column, and what is known of them all.

    Attributes:
        values: ``None`` where a cell is empty.
        is_full: no cell is empty.
        rises: they are whole numbers, each above the one before.
    """

    values: Numbers
    is_full: bool
    rises: bool = False


def plain_columns(text: str, width: int, separator: str) -> list[PlainColumn] | None:
    """Return the columns of rows that hold plain numbers, or nothing, in every cell.

    Args:
        text: whole lines, each ended by a line feed.
        width: number of cells in a row.
        separator: between cells.

    Returns:
        One per column; the numbers are what ``parse_cell`` makes of them. ``None`` if a row has
        another width or a cell holds a text: the rows have to be looked at one by one.
    """
    import numpy as np

    raw = text.encode("ascii", "replace")
    if raw.translate(None, _PLAIN + separator.encode()):
        return None
    padded = _PADDING + raw
    letters = np.frombuffer(padded, np.uint8)
    ends = np.flatnonzero((letters == _NEWLINE) | (letters == ord(separator)))
    rows, left = divmod(ends.size, width)
    if left or not rows:
        return None
    is_end = (letters[ends] == _NEWLINE).reshape(rows, width)
    if not is_end[:, -1].all() or is_end[:, :-1].any():
        return None
    starts = np.concatenate(([len(_PADDING)], ends[:-1] + 1))
    try:
        return [_column(padded, starts[place::width], ends[place::width]) for place in range(width)]
    except ValueError:
        return None


class _Part(NamedTuple):
    """Eight characters of every cell.

    Attributes:
        digits: the number that they spell without the dot.
        decimals: how many of them follow the dot.
        has_dot: whether the dot is among them.
        fits: whether they are digits and at most one dot.
    """

    digits: Places
    decimals: Places
    has_dot: Flags
    fits: Flags


def _column(padded: bytes, starts: Places, ends: Places) -> PlainColumn:
    """Return the numbers of one column, of which cells may be empty.

    Raises:
        ValueError: a cell holds a text.
    """
    import numpy as np

    filled = np.flatnonzero(ends > starts)
    if filled.size == ends.size:
        return _full_column(padded, starts, ends)
    found: Numbers = [None] * ends.size
    if filled.size:
        column = _full_column(padded, starts[filled], ends[filled])
        for row, value in zip(filled.tolist(), column.values, strict=True):
            found[row] = None if value is None else float(value)
    return PlainColumn(found, is_full=False)


def _full_column(padded: bytes, starts: Places, ends: Places) -> PlainColumn:
    """Return the numbers of cells of which none is empty; errors as :func:`_column`."""
    import numpy as np

    letters = np.frombuffer(padded, np.uint8)
    minus = letters[starts] == _MINUS
    powers = _powers(letters, ends)
    stops = ends if powers is None else ends - 4 * (powers != 0)
    lengths = stops - starts - minus
    whole, decimals, dots, fits = _mantissa(padded, stops, lengths)
    written = lengths - dots
    fits &= (written > 0) & (written <= _MOST_DIGITS)
    if powers is None and not dots.any() and not minus.any() and fits.all():
        rises = bool((whole[1:] > whole[:-1]).all())
        return PlainColumn(whole.tolist(), is_full=True, rises=rises)
    if powers is not None:
        decimals = decimals - powers
        fits &= np.abs(decimals) <= _MOST_DECIMALS
    numbers = _scaled(whole, decimals)
    if minus.any():
        numbers = np.where(minus, -numbers, numbers)  # of a zero, too
    found: Numbers = numbers.tolist()
    odd = np.flatnonzero(~fits).tolist()
    for row in odd:
        found[row] = parse_cell(padded[starts[row] : ends[row]].decode())
    return PlainColumn(found, is_full=not odd or None not in found)


def _powers(letters: Bytes, ends: Places) -> Places | None:
    """Return the power of ten of cells that end as ``e-05`` does, 0 of others; ``None`` of all."""
    import numpy as np

    is_power = letters[ends - 4] | 0x20 == _EXPONENT
    if not is_power.any():
        return None
    sign = np.where(letters[ends - 3] == _MINUS, -1, 1)
    digits = letters[ends - np.array([[2], [1]])].astype(np.int64) - 0x30
    is_power &= (digits >= 0).all(axis=0) & (letters[ends - 3] < 0x30)
    power: Places = np.where(is_power, sign * (10 * digits[0] + digits[1]), 0)
    return power


def _scaled(whole: Places, decimals: Places) -> NDArray[np.float64]:
    """Return ``whole / 10 ** decimals``, rounded once."""
    import numpy as np

    tens = 10.0 ** np.arange(_MOST_DECIMALS + 1)
    if decimals.min() >= 0:
        divided: NDArray[np.float64] = whole / tens[np.minimum(decimals, _MOST_DECIMALS)]
        return divided
    divisor = tens[np.clip(decimals, 0, _MOST_DECIMALS)]
    scaled: NDArray[np.float64] = whole * tens[np.clip(-decimals, 0, _MOST_DECIMALS)] / divisor
    return scaled


def _mantissa(padded: bytes, ends: Places, lengths: Places) -> _Part:
    """Read up to sixteen characters before ``ends``."""
    import numpy as np

    last = _part(padded, ends, np.minimum(lengths, _WORD))
    if lengths.max() <= _WORD:
        return last
    before = _part(padded, ends - _WORD, np.clip(lengths - _WORD, 0, _WORD))
    return _Part(
        digits=last.digits + before.digits * np.where(last.has_dot, 10**7, 10**8),
        decimals=np.where(before.has_dot, before.decimals + _WORD, last.decimals),
        has_dot=last.has_dot | before.has_dot,
        fits=last.fits & before.fits & ~(last.has_dot & before.has_dot),
    )


def _part(padded: bytes, ends: Places, lengths: Places) -> _Part:
    """Read the last eight characters before ``ends``, of which ``lengths`` belong to the cell."""
    import numpy as np

    words: Words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    unused = (8 * (_WORD - lengths)).astype(np.uint64)
    is_empty = lengths <= 0
    word = words[ends - _WORD] >> unused << unused
    found = word ^ np.uint64(0x2E * _EACH)  # a byte of zero where the dot is
    dot = (found - np.uint64(_EACH)) & ~found & np.uint64(0x80 * _EACH)
    has_dot = dot != 0
    unit = dot >> np.uint64(7)
    below = unit - np.uint64(1)
    eight = np.uint64(8)
    joined = ((word & below) << eight) | (word & ~(below | (unit * np.uint64(0xFF))))
    word = np.where(has_dot, joined, word)
    filled = unused + np.where(has_dot, eight, np.uint64(0))
    zeros = np.uint64(0x30 * _EACH) & ~(~np.uint64(0) << filled)
    fits = ((word | zeros) & np.uint64(0xF0 * _EACH)) == np.uint64(0x30 * _EACH)
    exponent = (unit.astype(np.float64).view(np.int64) >> 52) - 1023
    return _Part(
        digits=np.where(is_empty, 0, _added_up(word)),
        decimals=np.where(has_dot, 7 - exponent // 8, 0),
        has_dot=has_dot & ~is_empty,
        fits=fits | is_empty,
    )


def _added_up(word: Words) -> Places:
    """Return the number that eight digits spell, the first one in the lowest byte."""
    import numpy as np

    shift = np.uint64
    digits = (word & shift(0x0F * _EACH)) * shift(2561) >> shift(8)
    pairs = (digits & shift(0x00FF00FF00FF00FF)) * shift(6553601) >> shift(16)
    return ((pairs & shift(0x0000FFFF0000FFFF)) * shift(42949672960001) >> shift(32)).astype(
        np.int64
    )

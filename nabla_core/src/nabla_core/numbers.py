"""Numbers in strict JSON, where NaN and the infinities have no spelling of their own."""

from __future__ import annotations

import math
import sys

__all__ = ["json_number", "number_from_json"]

_SPELLINGS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def json_number(value: float) -> float | str:
    """Return ``value``, or ``"nan"``, ``"inf"``, ``"-inf"`` for the non-finite ones."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def number_from_json(value: object) -> float:
    """Undo :func:`json_number`.

    Raises:
        ValueError: ``value`` is no number, or a whole one beyond the range of numbers.
    """
    if isinstance(value, str) and value in _SPELLINGS:
        return _SPELLINGS[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ValueError("a whole number has more digits than any measurement")
        return value
    raise ValueError(f"expected a number, got {value!r}")

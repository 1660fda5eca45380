"""Numbers in messages: an element, a deviation, the agreement of many elements."""

from __future__ import annotations

import torch

from .compare import Deviation

__all__ = ["apart", "at_index", "describe", "dtype_name", "number"]


def number(value: float) -> str:
    """Return ``value`` with as many digits as a reader can use."""
    return f"{value:.6g}"


def dtype_name(dtype: torch.dtype) -> str:
    """Return e.g. ``float32``."""
    return str(dtype).removeprefix("torch.")


def apart(left: float, right: float) -> tuple[str, str]:
    """Return both with the fewest digits, six at least, that show a difference."""
    for digits in range(6, 18):
        shown = f"{left:.{digits}g}", f"{right:.{digits}g}"
        if shown[0] != shown[1]:
            break
    return shown


def at_index(name: str, index: tuple[int, ...]) -> str:
    """Return e.g. ``weight[2, 0]``; a scalar keeps its bare name."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def describe(name: str, found: Deviation) -> str:
    """Say what was got and expected at the worst element, with error and limit."""
    place = at_index(name, found.index)
    if found.part:
        place = f"{place} ({found.part} part)"
    got, expected = apart(found.got, found.expected)
    return (
        f"{place} is {got}, expected {expected} (error {found.error:.2g}, limit {found.limit:.2g})"
    )

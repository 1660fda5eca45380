"""Changes in place of memory that was there before the step: whose, where, and whether harmless."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ..taps.place import Line
    from .tape import Tape

__all__ = ["assigned_attribute", "is_in_place", "note_writes"]

_WRITING = frozenset(
    {"__iadd__", "__idiv__", "__imul__", "__ipow__", "__isub__", "__itruediv__", "__setitem__"}
)
_HARMLESS = frozenset(
    {
        "__iadd__",
        "__imul__",
        "__isub__",
        "add_",
        "clamp_",
        "clamp_max_",
        "clamp_min_",
        "clip_",
        "constant_",
        "fill_",
        "mul_",
        "nan_to_num_",
        "normal_",
        "ones_",
        "sub_",
        "uniform_",
        "zero_",
        "zeros_",
    }
)


def is_in_place(name: str) -> bool:
    """Whether a function of torch with this name changes its first argument."""
    return name in _WRITING or (name.endswith("_") and not name.endswith("__"))


def note_writes(
    tape: Tape,
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    place: Line | None,
) -> bool:
    """Note what a call in place changes that was there before.

    Returns:
        Whether it changes any such memory: doing the call again would change it twice.
    """
    first = args[0] if args else next(iter(kwargs.values()), None)
    targets = first if isinstance(first, (tuple, list)) else (first,)
    outside = [found for found in targets if isinstance(found, Tensor) and tape.is_outside(found)]
    if outside:
        others = (*args[1:], *kwargs.values()) if args else tuple(kwargs.values())[1:]
        harmless = name in _HARMLESS and all(map(_is_finite, others))
        for found in outside:
            tape.note_write(found, place, harmless=harmless)
    return bool(outside)


def assigned_attribute(func: Callable[..., object]) -> str:
    """Return which attribute of a tensor a ``__set__`` assigns."""
    return str(getattr(getattr(func, "__self__", None), "__name__", ""))


def _is_finite(value: object) -> bool:
    """Whether an argument is a number that adding, multiplying or clamping can be trusted with."""
    if isinstance(value, (int, float)):
        return math.isfinite(value)
    return not isinstance(value, (Tensor, tuple, list, complex))

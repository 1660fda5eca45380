"""The parts of a step outside of modules."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Region"]


class Region(IntEnum):
    """Part of a step, outside of modules: before the first, after it, after backward."""

    PREPARATION = 0
    LOSS = 1
    UPDATE = 2

"""Layers that show the same in the same step, told together."""

from __future__ import annotations

from collections.abc import Sequence

from .transitions import Transition

__all__ = ["alike", "listed"]

_MOST_NAMES = 4


def alike(one: Transition, other: Transition) -> bool:
    """Whether two layers show the same in the same step."""
    if one.rule != other.rule or not (one.layer and other.layer):
        return False
    return (one.stage, one.failure, one.to_state, one.first_step) == (
        other.stage,
        other.failure,
        other.to_state,
        other.first_step,
    )


def listed(names: Sequence[str]) -> str:
    """Return the first names and the last one."""
    if len(names) > _MOST_NAMES:
        names = [*names[: _MOST_NAMES - 1], f"… {names[-1]}"]
    return ", ".join(names)

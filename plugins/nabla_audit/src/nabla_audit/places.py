"""How a place in the user's code is told, where it may not be known."""

from __future__ import annotations

from nabla_core.issue import Location
from nabla_guard.facts import Place

__all__ = ["at", "where"]


def at(place: Place | None) -> str:
    """Return `` at file:line`` for a sentence, or nothing."""
    return f" at {place}" if place is not None else ""


def where(place: Place | None, op: str | None = None, *, module: str | None = None) -> Location:
    """Return the location of an issue; without a place, the name of what was called."""
    if place is None:
        return Location(op=op, module=module)
    return place.location(module=module)

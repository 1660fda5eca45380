"""Counts in words: ``1 step``, ``2 steps``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["amount", "shown_from"]


def amount(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown_from(here: Path, place: Path) -> Path:
    """Return a path as a person reads it who stands in ``here``."""
    return place.relative_to(here) if place.is_relative_to(here) else place

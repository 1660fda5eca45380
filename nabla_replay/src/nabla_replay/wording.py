"""Counts in words: ``1 step``, ``2 steps``."""

from __future__ import annotations

__all__ = ["amount"]


def amount(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

"""The known words that are nearest to a misspelt one."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["nearest"]


def nearest(word: str, known: Sequence[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known words that are most like ``word``, the nearest first.

    Args:
        word: what a person wrote.
        known: what would have been right.
        count: at most this many are returned.
        cutoff: least similarity in 0 to 1 (Ratcliff and Obershelp's, as in :mod:`difflib`).
    """
    from difflib import get_close_matches  # only mistakes pay for it

    return get_close_matches(word, known, n=count, cutoff=cutoff)

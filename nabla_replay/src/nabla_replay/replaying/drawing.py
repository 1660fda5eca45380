"""What a recorded loop drew beside its steps: found from where its generators were afterwards.

A log holds a digest of the global generators after each step, and not what was drawn before it. A
loop that logs a random sample, shuffles something or evaluates moves them between two steps. How
many words it drew follows from where the replayed step left them: a Mersenne twister is moved on
word by word until its digest is the recorded one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import torch

from ..capturing.generators import (
    GeneratorDigest,
    drawn_between,
    generator_state,
    restore_generators,
)

__all__ = ["Draws", "draw", "words_to"]

Draws = tuple[tuple[str, int], ...]
"""Words drawn by generator, e.g. ``(("python", 2),)``."""

_MOST_WORDS = 1500  # a digest has 20 bits: one of 700 wrong searches of this length ends by chance


def draw(words: Draws) -> None:
    """Move global generators on."""
    for name, count in words:
        for _ in range(count):
            _WORD[name]()


def words_to(recorded: str) -> Draws:
    """Return how far the global generators have to be moved on to where they were recorded.

    They stay as they are. Empty if no such move is found.

    Args:
        recorded: digest of the generators.
    """
    kept = generator_state()
    look = GeneratorDigest()
    found: list[tuple[str, int]] = []
    try:
        for name in drawn_between(look(), recorded):
            count = _count(name, recorded, look) if name in _WORD else 0
            if not count:
                return ()
            found.append((name, count))
    finally:
        restore_generators(kept)
    return tuple(found)


def _count(name: str, recorded: str, look: GeneratorDigest) -> int:
    for count in range(1, _MOST_WORDS + 1):
        _WORD[name]()
        if name not in drawn_between(look(), recorded):
            return count
    return 0


def _torch_word() -> None:
    torch.empty((), dtype=torch.int32).random_()


def _numpy_word() -> None:
    np.random.bytes(4)


def _python_word() -> None:
    random.getrandbits(32)


_WORD: Mapping[str, Callable[[], None]] = {
    "torch": _torch_word,
    "numpy": _numpy_word,
    "python": _python_word,
}

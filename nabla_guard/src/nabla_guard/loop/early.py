"""The first gradients of each parameter: whether they are exactly zero."""

from __future__ import annotations

from collections.abc import Iterable

from .exact import sample_of
from .gradients import GradientRecord
from .signals import nonzero_flags

__all__ = ["count_nonzero"]


def count_nonzero(early: Iterable[GradientRecord]) -> dict[int, bool]:
    """Return by ``id`` of the record whether its gradient is not exactly zero, and count it.

    At the first gradient of a parameter a sample of its values is kept, to see later whether it was
    trained.
    """
    pairs = [
        (found, parameter, parameter.grad)
        for found in early
        if (parameter := found.ref()) is not None and parameter.grad is not None
    ]
    flags = nonzero_flags([grad for _, _, grad in pairs])
    for (found, parameter, _), flag in zip(pairs, flags, strict=True):
        found.facts.nonzero_writes += flag
        if found.first is None and not found.facts.ever_held:
            found.first = sample_of(parameter)
    return {id(found): flag for (found, _, _), flag in zip(pairs, flags, strict=True)}

"""One name for each layer: some rules name it from the root's class on, others below the root."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .transitions import Transition

__all__ = ["in_one_naming"]


def in_one_naming(found: Sequence[Transition], layers: Iterable[str]) -> list[Transition]:
    """Take the class of the root off where another finding names the same layer without it.

    Args:
        found: e.g. one of ``Net.head`` and one of ``head``; both become the latter.
        layers: further names that are known.
    """
    known = {*layers, *(one.layer for one in found)}
    return [replace(one, layer=_below(one.layer, known)) for one in found]


def _below(layer: str, known: set[str]) -> str:
    root, _, rest = layer.partition(".")
    return rest if rest in known and root[:1].isupper() else layer

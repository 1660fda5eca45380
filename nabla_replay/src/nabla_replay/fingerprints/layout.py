"""Which bytes are hashed in which step: the state, laid end to end, in equal parts that take turns.

One part is hashed per step, so that every byte is looked at once in as many steps as there are
parts. A hash costs about as much as four kilobytes besides its bytes: a tensor weighs that in
addition, or many small tensors would make a part that costs several times the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Extent", "Piece", "cut", "cut_evenly", "whole_weight"]

_CALL_WEIGHT = 4096
_ALIGNMENT = 64  # cuts never split a number


@dataclass(frozen=True, slots=True)
class Extent:
    """How many bytes an entry of the table has; those of a whole one are never cut apart."""

    size_bytes: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``start`` to ``end`` of the entry with this index."""

    entry: int
    start: int
    end: int


def cut(extents: Sequence[Extent], parts: int) -> tuple[tuple[Piece, ...], ...]:
    """Cut a state into ``parts`` parts of about the same cost; together they cover every byte.

    The same extents always give the same parts, so that a replay knows what a value belongs to.

    Args:
        extents: the entries of the state, in order.
        parts: how many steps it takes to look at everything, at least 1.
    """
    if parts == 1:
        return (tuple(Piece(i, 0, extent.size_bytes) for i, extent in enumerate(extents)),)
    share = max(whole_weight(extents) / parts, 1.0)
    found: list[list[Piece]] = [[] for _ in range(parts)]
    laid = 0.0
    for index, extent in enumerate(extents):
        weight = extent.size_bytes + _CALL_WEIGHT
        if extent.whole or extent.size_bytes <= _CALL_WEIGHT:
            found[min(int((laid + weight / 2) / share), parts - 1)].append(
                Piece(index, 0, extent.size_bytes)
            )
        else:
            _spread(found, Piece(index, 0, extent.size_bytes), laid, share)
        laid += weight
    return tuple(tuple(pieces) for pieces in found)


def cut_evenly(
    extents: Sequence[Extent], apart: Sequence[bool], parts: int
) -> tuple[tuple[Piece, ...], ...]:
    """Cut two kinds of entries, so that every part holds its share of both.

    Gradients must not take the turns of the parameters: a part without any parameter would say
    nothing about the state that a program goes on with.

    Args:
        extents: the entries of the state, in order.
        apart: whether an entry is of the second kind.
        parts: how many steps it takes to look at everything.
    """
    found: list[list[Piece]] = [[] for _ in range(parts)]
    for kind in (False, True):
        mine = [index for index, second in enumerate(apart) if second is kind]
        for part, pieces in enumerate(cut([extents[index] for index in mine], parts)):
            found[part] += [Piece(mine[one.entry], one.start, one.end) for one in pieces]
    return tuple(tuple(pieces) for pieces in found)


def whole_weight(extents: Sequence[Extent]) -> int:
    """Return what it costs to hash a state, in bytes."""
    return sum(extent.size_bytes + _CALL_WEIGHT for extent in extents)


def _spread(found: list[list[Piece]], entry: Piece, laid: float, share: float) -> None:
    """Give each part its bytes of one entry that begins at ``laid``."""
    start = 0
    while start < entry.end:
        part = min(int((laid + start) / share), len(found) - 1)
        end = entry.end
        if part < len(found) - 1:
            reach = int((part + 1) * share - laid)
            end = min(entry.end, -(-max(reach, start + 1) // _ALIGNMENT) * _ALIGNMENT)
        found[part].append(Piece(entry.entry, start, end))
        start = end

"""What a kept step refers to instead of holding it: what an earlier entry made, what was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from torch import Tensor

__all__ = ["GradientOf", "Made", "Outside", "made_in", "references_in", "version_of"]

ReferenceT = TypeVar("ReferenceT", "Made", "Outside")


@dataclass(slots=True, eq=False)  # made in every step: frozen would cost three times
class Made:
    """A tensor that an earlier entry made."""

    entry: int
    index: int


@dataclass(slots=True, eq=False)  # made in every step: frozen would cost three times
class Outside:
    """A tensor that nothing on the tape made: a batch, a target, a parameter.

    Attributes:
        tensor: the tensor itself.
        version: its version counter when it was used; -1 where it has none.
        cut: it belongs to an autograd graph that the tape does not know.
    """

    tensor: Tensor
    version: int
    cut: bool


@dataclass(slots=True, eq=False)  # made for each gradient that is read in a step
class GradientOf:
    """What ``leaf.grad`` is at that time: reading it is no entry, as it computes nothing."""

    entry: ClassVar[int] = 0
    leaf: Tensor


def made_in(*frozen: object) -> set[int]:
    """Return the entries that frozen arguments refer to."""
    return {made.entry for made in references_in(Made, *frozen)}


def references_in(kind: type[ReferenceT], *frozen: object) -> list[ReferenceT]:
    """Return the references of one kind in frozen arguments, in their order."""
    found: list[ReferenceT] = []
    waiting: list[object] = [*frozen[::-1]]
    while waiting:
        value = waiting.pop()
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (tuple, list, dict)):
            waiting += _parts(value)[::-1]
    return found


def _parts(value: tuple[object, ...] | list[object] | dict[object, object]) -> list[object]:
    return [*value.values()] if isinstance(value, dict) else [*value]


def version_of(tensor: Tensor) -> int:
    """Return the version counter of a tensor; -1 where it has none."""
    return -1 if tensor.is_inference() else tensor._version

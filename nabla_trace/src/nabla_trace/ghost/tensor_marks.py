"""Something noted about tensors, by identity, for as long as each lives."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

__all__ = ["TensorMarks"]

Mark = TypeVar("Mark")


class TensorMarks(Generic[Mark]):
    """A mapping with tensors as keys that keeps none of them alive.

    It is asked several times in every call of a forward pass, so it is one look-up in a plain
    dictionary; that of :mod:`torch.utils.weak` makes two objects for each question.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[int, tuple[ref[Tensor], Mark]] = {}

    def __setitem__(self, tensor: Tensor, mark: Mark) -> None:
        self._marks[id(tensor)] = ref(tensor), mark

    def get(self, tensor: Tensor) -> Mark | None:
        """Return what was noted about ``tensor``."""
        found = self._marks.get(id(tensor))
        # the identity of a tensor that is gone may be that of another one by now
        return found[1] if found is not None and found[0]() is tensor else None

    def __contains__(self, tensor: object) -> bool:
        found = self._marks.get(id(tensor))
        return found is not None and found[0]() is tensor

    def clear(self) -> None:
        """Forget everything."""
        self._marks.clear()

"""The weights in a file that ``torch.load`` returned, and whether a module ever took one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from ..facts import Place
from .own_states import address

__all__ = ["FileWeights"]

_MAX_DEPTH = 2


class FileWeights:
    """Names, shapes and addresses of the tensors of one file; no tensor is kept.

    Attributes:
        place: where it was loaded.
        shapes: shape of each named tensor, in the largest mapping of names to tensors.
        taken: whether a module was given one of its tensors.
    """

    def __init__(self, content: Mapping[object, object], place: Place | None) -> None:
        self.place = place
        weights = max(_tables(content, 0), key=len, default={})
        self.shapes = {name: tuple(value.shape) for name, value in weights.items()}
        self.taken = False
        self._homes = {address(value) for value in weights.values() if value.numel()}

    def offer(self, state: Mapping[str, object]) -> None:
        """Note that a module is given ``state``."""
        self.taken = self.taken or any(
            isinstance(value, Tensor) and value.numel() > 0 and address(value) in self._homes
            for value in state.values()
        )


def _tables(content: Mapping[object, object], depth: int) -> Iterator[dict[str, Tensor]]:
    """The mappings of names to tensors in a checkpoint; an optimizer's moments have numbers."""
    found = {
        name: value
        for name, value in content.items()
        if isinstance(name, str) and isinstance(value, Tensor)
    }
    if found:
        yield found
    if depth < _MAX_DEPTH:
        for value in content.values():
            if isinstance(value, Mapping):
                yield from _tables(value, depth + 1)

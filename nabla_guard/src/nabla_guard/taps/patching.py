"""Replace attributes of torch and put them back, whatever others did in the meantime."""

from __future__ import annotations

import functools
from collections.abc import Callable

__all__ = ["Patches", "Replacement"]

Replacement = Callable[..., object]


class Patches:
    """A stack of replaced attributes.

    When somebody else replaced the same attribute after us, putting ours back would remove theirs:
    then ours stays underneath, and must be written so that it only passes on once it is inactive.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[object, str, Replacement, Replacement]] = []

    def replace(self, owner: object, name: str, make: Callable[[Replacement], Replacement]) -> bool:
        """Replace ``owner.name`` by ``make(original)``; return whether the attribute exists.

        Only an attribute of ``owner`` itself is replaced, never an inherited one.
        """
        original = vars(owner).get(name)
        if not callable(original):
            return False
        replacement = make(original)
        functools.update_wrapper(replacement, original)
        setattr(owner, name, replacement)
        self._undo.append((owner, name, original, replacement))
        return True

    def restore(self) -> None:
        """Put every original back, the last replacement first."""
        while self._undo:
            owner, name, original, replacement = self._undo.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)

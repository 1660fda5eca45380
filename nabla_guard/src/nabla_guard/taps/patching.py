"""Replace attributes of torch and put them back, whatever others did in the meantime."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from types import FunctionType

__all__ = ["Patches", "Replacement"]

Replacement = Callable[..., object]

_RETIRED: weakref.WeakSet[Replacement] = weakref.WeakSet()


class Patches:
    """A stack of replaced attributes.

    When somebody else replaced the same attribute after us, putting ours back would remove theirs:
    then ours stays underneath, and must be written so that it only passes on once it is inactive.
    Where the other was one of us, ours goes when the other does, in whatever order they end.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[object, str, Replacement]] = []

    def replace(self, owner: object, name: str, make: Callable[[Replacement], Replacement]) -> bool:
        """Replace ``owner.name`` by ``make(original)``; return whether the attribute exists.

        Only an attribute of ``owner`` itself is replaced, never an inherited one.
        """
        present = vars(owner).get(name)
        original = _plain(present)
        if not callable(original):
            return False
        replacement = make(original)
        _wrap(replacement, original)
        setattr(owner, name, _like(present, replacement))
        self._undo.append((owner, name, replacement))
        return True

    def restore(self) -> None:
        """Put every original back, the last replacement first."""
        while self._undo:
            owner, name, replacement = self._undo.pop()
            _RETIRED.add(replacement)
            _uncover(owner, name)


def _wrap(replacement: Replacement, original: Replacement) -> None:
    """Do what ``functools.update_wrapper`` does; between two functions that costs a third."""
    if type(original) is not FunctionType or type(replacement) is not FunctionType:
        functools.update_wrapper(replacement, original)
        return
    replacement.__module__ = original.__module__
    replacement.__name__, replacement.__qualname__ = original.__name__, original.__qualname__
    replacement.__doc__, replacement.__annotations__ = original.__doc__, original.__annotations__
    replacement.__dict__.update(original.__dict__)
    replacement.__dict__["__wrapped__"] = original


def _uncover(owner: object, name: str) -> None:
    """Take off the replacements on top that have been given back."""
    present = vars(owner).get(name)
    function = _plain(present)
    if callable(function) and function in _RETIRED:
        bare = inspect.unwrap(function, stop=lambda found: found not in _RETIRED)
        setattr(owner, name, _like(present, bare))


def _plain(attribute: object) -> object:
    """The function behind a class method, as the class holds it."""
    return attribute.__func__ if isinstance(attribute, classmethod) else attribute


def _like(attribute: object, function: Callable[..., object]) -> object:
    return classmethod(function) if isinstance(attribute, classmethod) else function

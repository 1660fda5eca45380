"""Names of the leaf modules that were called, in the order in which they were met."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch.nn import Module

from ..origin.naming import plain_path

__all__ = ["Chosen", "Roster", "chooser", "path_in"]

_MOST = 4096
_MISSES = 8
_EVERY_MISS = 64

Chosen = Callable[[str, str], bool]
"""Whether a module is looked at, by its path and the name of its class."""


def chooser(modules: Iterable[str] = (), exclude: Iterable[str] = ()) -> Chosen:
    """Return what decides whether a module is looked at.

    Args:
        modules: globs for paths or class names, one of which must match; empty for all.
        exclude: globs, none of which may match.
    """
    wanted, unwanted = tuple(modules), tuple(exclude)

    def chosen(path: str, kind: str) -> bool:
        return (not wanted or _matches(path, kind, wanted)) and not _matches(path, kind, unwanted)

    return chosen


class _Root:
    """A root module with the paths of its parts as of the last look."""

    __slots__ = ("_misses", "_parts", "ref", "serial")

    def __init__(self, ref: weakref.ref[Module], serial: int) -> None:
        self.ref = ref
        self.serial = serial
        self._misses = 0
        self._parts: dict[int, tuple[weakref.ref[Module], str]] = {}

    def path(self, part: Module) -> str | None:
        """Return the path of ``part``; ``None`` when it does not belong to the root."""
        known = self._known(part)
        root = self.ref()
        if known is None and root is not None:
            self._misses += 1  # a module that is made in every call must not cost a walk each time
            if self._misses <= _MISSES or not self._misses % _EVERY_MISS:
                self._parts = {
                    id(found): (weakref.ref(found), path) for path, found in root.named_modules()
                }
                known = self._known(part)
        return known

    def _known(self, part: Module) -> str | None:
        entry = self._parts.get(id(part))
        return None if entry is None or entry[0]() is not part else entry[1]


class Roster:
    """Gives every leaf module of the watched models a number and a name.

    A module that is not part of its root (one that is made anew in every call, say) shares the
    number of its class, and a model that takes the place of one that is gone shares its names. Of
    the same path in several models only the first is called by the path alone.

    Attributes:
        names: name of each number.
        bare: the numbers of those without parameters.

    Args:
        chosen: says which modules are looked at.
    """

    def __init__(self, chosen: Chosen) -> None:
        self.names: tuple[str, ...] = ()
        self.bare: set[int] = set()
        self._chosen = chosen
        self._numbers: dict[tuple[int, str], int] = {}
        self._roots: dict[int, _Root] = {}
        self._free: dict[str, list[int]] = {}
        self._serials = 0

    def number(self, root: Module, leaf: Module) -> int:
        """Return the number of a leaf module; -1 when it is not looked at."""
        record = self._root(root)
        kind = type(leaf).__name__
        path = path_in(root, leaf, record.path(leaf))
        if not self._chosen(path, kind):
            return -1
        known = self._numbers.get((record.serial, path))
        if known is None and len(self.names) < _MOST:
            known = self._numbers[record.serial, path] = len(self.names)
            self.names = (*self.names, self._unique(path, root))
            if next(leaf.parameters(), None) is None:
                self.bare.add(known)
        return -1 if known is None else known

    def path(self, root: Module, part: Module) -> str:
        """Return how a module inside ``root`` is called."""
        return path_in(root, part, self._root(root).path(part))

    def _root(self, root: Module) -> _Root:
        key, kind = id(root), type(root).__name__
        known = self._roots.get(key)
        if known is None:
            serials = self._free.setdefault(kind, [])
            if not serials:
                self._serials += 1
                serials.append(self._serials)
            serial = serials.pop()
            roots = self._roots

            def gone(_: weakref.ref[Module]) -> None:
                del roots[key]
                serials.append(serial)

            known = roots[key] = _Root(weakref.ref(root, gone), serial)
        return known

    def _unique(self, path: str, root: Module) -> str:
        name, count = path, 1
        while name in self.names:
            name = f"{type(root).__name__}{f'#{count}' if count > 1 else ''}.{path}"
            count += 1
        return name


def path_in(root: Module, part: Module, path: str | None) -> str:
    """Return the path of a part as people know it: the class name where there is none."""
    return plain_path(path or "") or type(part).__name__


def _matches(path: str, kind: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, glob) or fnmatchcase(kind, glob) for glob in globs)

"""Calls a function right after a module has been imported, without importing it earlier.

A program may set environment variables before its own ``import torch``; importing torch for it,
only to watch it, could change what it computes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["ImportWatch", "when_imported"]


def when_imported(name: str, callback: Callable[[], None]) -> ImportWatch:
    """Call ``callback`` once, as soon as the top-level module ``name`` is fully imported.

    Returns:
        The watch; :meth:`ImportWatch.stop` ends it.
    """
    watch = ImportWatch(name, callback)
    if name in sys.modules:
        watch.fire()
    else:
        sys.meta_path.insert(0, watch)
    return watch


class ImportWatch(MetaPathFinder):
    """Waits on ``sys.meta_path`` for one module; removes itself when it has seen it."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self._callback: Callable[[], None] | None = callback
        self._searching = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Let the other finders find the module, and wrap its loader."""
        if fullname != self.name or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _FiringLoader(spec.loader, self)
        return spec

    def fire(self) -> None:
        """Call the callback, the first time only."""
        self.stop()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def stop(self) -> None:
        """Stop waiting."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _FiringLoader(Loader):
    """Stands in for a loader until the module runs, then gives it back its own."""

    def __init__(self, loader: Loader, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._watch.fire()

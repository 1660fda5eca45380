"""Lets a program import its own ``statistics.py`` although nabla has imported the other one.

Python searches the folder of the script first, so a file there hides an installed or standard
module of the same name. nabla has loaded some of those before the program starts; without this the
program would silently get them instead of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType

__all__ = ["hide_shadowed", "restore_modules"]

_EVER_LOADED = frozenset({"encodings", "__main__", "nabla"})
"""Loaded before any script starts (so never hidden by it), or ours."""


def hide_shadowed(folder: str) -> Mapping[str, ModuleType]:
    """Forget loaded modules that a file in ``folder`` would have hidden from the program.

    Returns:
        The forgotten modules, for :func:`restore_modules`.
    """
    shadowed = {name for name in _top_level_files() if _would_hide(folder, name)}
    hidden = {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] in shadowed
    }
    for name in hidden:
        del sys.modules[name]
    return hidden


def restore_modules(hidden: Mapping[str, ModuleType]) -> None:
    """Put hidden modules back, so that nabla goes on with the ones it started with."""
    sys.modules.update(hidden)


def _top_level_files() -> list[str]:
    # built-in and frozen modules have no file: the interpreter itself needed them at start-up
    return [
        name
        for name, module in sys.modules.items()
        if "." not in name
        and name not in _EVER_LOADED
        and not name.startswith("nabla_")
        and getattr(getattr(module, "__spec__", None), "has_location", False)
    ]


def _would_hide(folder: str, name: str) -> bool:
    own_files = (os.path.join(folder, f"{name}.py"), os.path.join(folder, name, "__init__.py"))
    loaded = getattr(sys.modules[name], "__file__", None) or ""
    return any(os.path.isfile(own) and not _is_same(own, loaded) for own in own_files)


def _is_same(own: str, loaded: str) -> bool:
    return os.path.exists(loaded) and os.path.samefile(own, loaded)

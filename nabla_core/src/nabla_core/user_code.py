"""Executes the user's own code where a command names it: a file, or a module by its name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .errors import InputError

__all__ = ["load_file", "load_module"]


def load_module(name: str) -> ModuleType:
    """Import a module by its name, also from the present folder.

    Raises:
        InputError: it cannot be imported, or it ended itself.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def load_file(path: Path, name: str) -> ModuleType:
    """Execute a Python file.

    Args:
        path: the file.
        name: what the module is called; dataclasses and pickling look it up in ``sys.modules``.

    Raises:
        InputError: there is no such file, it is not Python, or it raised or ended itself.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{path} raised {type(error).__name__}: {error}") from error
    return module

"""The program to replay with, as named on the command line.

It is the only code that a replay runs, and it never comes from the run itself.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from nabla_core.errors import InputError, UsageError

__all__ = ["load_factory"]

_MANY = 12


def load_factory(target: str, run: Path) -> Callable[..., object]:
    """Import a function that the person named.

    Args:
        target: ``file.py:function`` or ``module:function``.
        run: folder of the run; files inside it are refused.

    Raises:
        UsageError: the text is no target, or names a file inside the run.
        InputError: the module cannot be imported, or has no such function.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(f"{target}: write it as file.py:function or module:function")
    module = _load_file(Path(place), run) if place.endswith(".py") else _load_module(place)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{target}: {place} has no {name}{_instead(found)}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{target}: {name} is {type(found).__name__}, which cannot be called")
    return found


def _instead(module: object) -> str:
    """Name the functions and classes that a module defines itself."""
    own = getattr(module, "__name__", None)
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == own
    ]
    return f"; it has {', '.join(names[:_MANY])}" if names else "; it defines no function"


def _load_file(path: Path, run: Path) -> ModuleType:
    # not nabla_core.user_code: what a program raises is its own failure, told with its own lines
    # and exit code 3, and no input that cannot be read
    place = path.resolve()
    if place.is_relative_to(run.resolve()):
        raise UsageError(f"{path}: lies inside the run; code that came with a run is not executed")
    if not place.is_file():
        raise InputError(f"{path}: no such file")
    name = f"nabla_replayed_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # workers of a loader look their dataset's class up there
    folder = str(place.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{path}: line {error.lineno}: {error.msg}") from error
    return module


def _load_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"{name}: {error}") from error

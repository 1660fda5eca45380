"""Loads the planted programs from copies of their files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import cast

from nabla_core.issue import Issue

from .bug import Bug
from .toolbox import Toolbox

__all__ = ["Planted", "Shelf"]

Planted = Callable[[Toolbox, bool], tuple[Issue, ...]]


class Shelf:
    """The programs, each loaded once.

    Frames of nabla's own packages are never named as the place of a fault. The programs are judged
    as those of a person would be, so their files are copied into a folder that is none of ours.

    Args:
        folder: where the copies are put; must be there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ModuleType] = {}

    def program(self, bug: Bug) -> Planted:
        """Return the function that plants the bug."""
        file, _, function = bug.program.partition(":")
        if file not in self._modules:
            self._modules[file] = self._load(file)
        return cast("Planted", getattr(self._modules[file], function))

    def close(self) -> None:
        """Forget the modules."""
        for module in self._modules.values():
            sys.modules.pop(module.__name__, None)
        self._modules.clear()

    def _load(self, file: str) -> ModuleType:
        name = f"{file}.py"
        path = self._folder / name
        text = files("nabla_bench").joinpath("programs", name).read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"nabla_bench_program_{file}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be loaded", name=file, path=str(path))
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module  # its classes look themselves up by this name
        spec.loader.exec_module(module)
        return module

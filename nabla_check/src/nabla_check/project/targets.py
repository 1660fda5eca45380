"""Operators named on the command line: ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import torch

from nabla_core.errors import InputError, UsageError

from ..check_operator import operator
from ..inputs.specs import tensor
from ..options import Level
from ..result import CheckResult

__all__ = ["TargetInputs", "check_target", "load_target", "parse_shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInputs:
    """Inputs described on the command line.

    Attributes:
        shapes: one per input; none to use ``inputs`` of the target's module.
        dtype: of all of them.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = "float64"


def parse_shape(text: str) -> tuple[int, ...]:
    """Read ``4,3`` or ``4x3``; an empty text is a scalar.

    Raises:
        UsageError: not a list of sizes.
    """
    parts = [part for part in text.replace("x", ",").replace(" ", "").split(",") if part]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"--shape {text}: write the sizes of the axes like 4,3")
    return tuple(int(part) for part in parts)


def load_target(target: str) -> tuple[Callable[..., object], ModuleType]:
    """Import a target; an ``autograd.Function`` stands for its ``apply``.

    Raises:
        UsageError: the text is no target.
        InputError: the module cannot be imported, or has no such callable.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(f"{target}: write a target as module:function or file.py:function")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{target}: {place} has no {name}")
        found = getattr(found, part)
    if isinstance(found, type) and issubclass(found, torch.autograd.Function):
        found = found.apply
    if not callable(found):
        raise InputError(f"{target}: {name} is {type(found).__name__} and cannot be called")
    return found, module


def check_target(
    target: str,
    reference: str | None,
    recipe: TargetInputs,
    *,
    level: Level = "full",
    seed: int | None = None,
) -> CheckResult:
    """Check one target.

    Raises:
        UsageError: no inputs are known for it.
        InputError: the target or the reference cannot be imported.
    """
    candidate, module = load_target(target)
    truth = None if reference is None else load_target(reference)[0]
    return operator(
        candidate=candidate,
        reference=truth,
        inputs=_inputs(target, module, recipe),
        level=level,
        seed=seed,
    )


def _inputs(target: str, module: ModuleType, recipe: TargetInputs) -> object:
    if recipe.shapes:
        dtype = cast(torch.dtype, getattr(torch, recipe.dtype))
        return [tensor(shape, dtype=dtype) for shape in recipe.shapes]
    given: object = getattr(module, "inputs", None)
    if given is None:
        raise UsageError(
            f"{target}: no inputs; give --shape 4,3 for each input, or define inputs beside it"
        )
    return given() if callable(given) else given


def _load_module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise InputError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    name = str(path.resolve()).encode(errors="surrogateescape")  # any bytes that a file can have
    digest = hashlib.sha256(name).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"nabla_target_{digest}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    if spec.name in sys.modules:
        return sys.modules[spec.name]
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script that ends itself is no target
        del sys.modules[spec.name]
        raise InputError(f"{path} raised {type(error).__name__}: {error}") from error
    return module

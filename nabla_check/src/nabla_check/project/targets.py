"""Operators named on the command line: ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import torch

from nabla_core.errors import InputError, UsageError
from nabla_core.user_code import load_file, load_module

from ..check_operator import operator
from ..inputs.specs import tensor
from ..options import Level
from ..result import CheckResult

__all__ = ["TargetInputs", "check_target", "load_target", "parse_shape"]

_SIZES = re.compile(r"[0-9]+(,[0-9]+)*,?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInputs:
    """Inputs described on the command line, and where evidence goes.

    Attributes:
        shapes: one per input; none to use ``inputs`` of the target's module.
        dtype: of all of them.
        artifact_dir: folder for the evidence of a failure.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = "float64"
    artifact_dir: str | None = None


def parse_shape(text: str) -> tuple[int, ...]:
    """Read ``4,3`` or ``4x3``; an empty text is a scalar.

    Raises:
        UsageError: not a list of sizes.
    """
    plain = text.replace("x", ",").replace(" ", "")
    if plain and _SIZES.fullmatch(plain) is None:
        raise UsageError(f"--shape {text}: write the sizes of the axes like 4,3")
    return tuple(int(part) for part in plain.split(",") if part)


def load_target(target: str) -> tuple[Callable[..., object], ModuleType]:
    """Import a target; an ``autograd.Function`` stands for its ``apply``.

    Raises:
        UsageError: the text is no target.
        InputError: the module cannot be imported, or has no such callable.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(f"{target}: write a target as module:function or file.py:function")
    module = _load_file(Path(place)) if place.endswith(".py") else load_module(place)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{target}: {place} has no {name}")
        found = getattr(found, part)
    if isinstance(found, type) and issubclass(found, torch.autograd.Function):
        found = found.apply
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        raise InputError(f"{target}: {name} is a class; name a module that {name}() has made")
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
        artifact_dir=recipe.artifact_dir,
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


def _load_file(path: Path) -> ModuleType:
    place = str(path.resolve()).encode(errors="surrogateescape")  # any bytes that a file can have
    name = f"nabla_target_{hashlib.sha256(place).hexdigest()[:8]}"
    known = sys.modules.get(name) if path.is_file() else None
    return load_file(path, name) if known is None else known

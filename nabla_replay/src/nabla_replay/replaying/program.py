"""The program that executes recorded steps again, in whatever form a person gives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nabla_core.errors import UsageError

from ..capturing.parts import Parts, collect_parts

__all__ = ["Program", "StepCall", "program_of"]

StepCall = Callable[[int, object], object]
"""Executes one step, given its number and its batch (``None`` without a loader)."""

_SPELLINGS = {
    "model": ("model", "module", "net"),
    "optimizer": ("optimizer", "optimizers"),
    "scheduler": ("scheduler", "schedulers"),
    "scaler": ("scaler", "grad_scaler"),
    "extra": ("extra",),
    "loader": ("loader", "train_loader", "dataloader", "batches"),
    "step": ("step", "step_fn", "train_step", "training_step"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to replay.

    Attributes:
        parts: what its state consists of.
        step: executes one step.
        roots: the step as it was given, and what built the program returned: what it holds beside
            its parts hangs on them.
    """

    parts: Parts
    step: StepCall = field(repr=False)
    roots: tuple[object, ...] = field(default=(), repr=False)


def program_of(given: Mapping[str, object]) -> Program:
    """Return the program that the arguments of ``replay`` describe.

    Args:
        given: ``build`` (returns an object or a mapping with the parts and ``step``), or the parts
            themselves and ``step_fn``; what is given beside ``build`` wins.

    Raises:
        UsageError: there is no model or no step, or a part is of the wrong kind.
    """
    built: object = None
    build = given.get("build")
    if build is not None:
        if not callable(build):
            raise UsageError(f"replay(build={type(build).__name__}): needs a function")
        if not isinstance(build, type) and _positional(build):
            raise UsageError(
                f"replay: {getattr(build, '__name__', 'build')}() needs "
                f"{_positional(build)} arguments, and is called without any; wrap it in a function "
                "that gives them"
            )
        built = build()
    found = {part: _look(built, names) for part, names in _SPELLINGS.items()}
    found.update({part: given[part] for part in _SPELLINGS if given.get(part) is not None})
    step = given.get("step_fn") or found.pop("step")
    found.pop("step", None)
    model = found.pop("model")
    if model is None:
        raise UsageError(
            f"replay: needs a model; {_origin(build)} gave none. Give model=..., "
            "or let build() return an object with model, optimizer, loader and step(batch)"
        )
    if not callable(step):
        raise UsageError(
            "replay: needs to know how to take a step: give step_fn=..., or let build() return an "
            "object with step(batch)"
        )
    optimizer = found.pop("optimizer")
    parts = collect_parts("replay", model, optimizer, **found)  # type: ignore[arg-type]
    call = _caller(step, has_loader=parts.loader is not None)
    return Program(parts=parts, step=call, roots=(step, built))


def _look(built: object, names: tuple[str, ...]) -> object:
    for name in names:
        value = built.get(name) if isinstance(built, Mapping) else getattr(built, name, None)
        # a method of a person's own may have the name of a part: only a step is one
        if value is not None and (names is _SPELLINGS["step"] or not inspect.isroutine(value)):
            return value
    return None


def _caller(step: Callable[..., object], *, has_loader: bool) -> StepCall:
    """Call a step with what it takes: its batch, its number, both in that order, or nothing."""
    takes = _positional(step)
    if has_loader:
        if takes == 1:
            return lambda number, batch: step(batch)
        if takes == 0:
            return lambda number, batch: step()
        return lambda number, batch: step(number, batch)
    if takes == 0:
        return lambda number, batch: step()
    if takes == 1:
        return lambda number, batch: step(number)
    return lambda number, batch: step(number, {"step": number})


def _positional(step: Callable[..., object]) -> int:
    """Return how many positional arguments without a default a function takes."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is inspect.Parameter.empty for one in parameters)


def _origin(build: object) -> str:
    return "nothing" if build is None else f"{getattr(build, '__name__', 'build')}()"

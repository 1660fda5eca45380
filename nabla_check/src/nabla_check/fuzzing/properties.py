"""Laws that the user states: a predicate over outputs, or two computations that must agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import torch

from nabla_core.errors import UsageError

from ..inputs.operands import is_differentiable
from ..inputs.tree import flatten
from ..wording.compare import deviation, largest
from ..wording.describe import describe

__all__ = ["Equivalence", "Law", "Predicate", "equivalent", "property"]

Function = Callable[..., object]

_ROUNDINGS = 256.0


@dataclass(frozen=True, slots=True)
class Predicate:
    """A law about the output of one call.

    Attributes:
        name: how reports call it.
        holds: called with the output and then as many inputs as it takes; returns a bool.
    """

    name: str
    holds: Function

    def violation(self, operator: Function, inputs: Sequence[object]) -> str | None:
        """Return what is wrong, ``None`` when the law holds.

        Raises:
            UsageError: the predicate raises, or returns no single truth value.
        """
        output = operator(*inputs)
        given = [output, *inputs][: _positional(self.holds, 1 + len(inputs))]
        with torch.no_grad():
            answer = _ask(self.name, self.holds, given)
        if isinstance(answer, str):
            return answer
        return None if _truth(self.name, answer) else "the predicate is false"


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two computations that must give the same result up to rounding.

    Attributes:
        name: how reports call it.
        left: called with the operator and the inputs.
        right: the same; the plain call of the operator when it is ``None``.
    """

    name: str
    left: Function
    right: Function | None

    def violation(self, operator: Function, inputs: Sequence[object]) -> str | None:
        """Return what is wrong, ``None`` when both sides agree.

        Raises:
            UsageError: one side raises.
        """
        with torch.no_grad():
            sides = self._sides(operator, inputs)
            moved = self._sides(operator, [_rounded(x) for x in inputs])
        found = [_tensors(side) for side in sides]
        again = [_tensors(side) for side in moved]
        if [x.shape for x in found[0]] != [x.shape for x in found[1]]:
            shapes = " and ".join(str([tuple(x.shape) for x in side]) for side in found)
            return f"the two sides have shapes {shapes}"
        for index, (a, b) in enumerate(zip(*found, strict=True)):
            room = 8 * max(_change(again[side][index], found[side][index]) for side in (0, 1))
            unit = float(torch.finfo(b.dtype).eps) / 2 if is_differentiable(b) else 0.0
            worst = deviation(a, b, relative=_ROUNDINGS * unit, absolute=room)
            if worst is not None:
                return f"left side {describe('output', worst)}"
        return None

    def _sides(self, operator: Function, inputs: Sequence[object]) -> tuple[object, object]:
        left = _ask(self.name, self.left, [operator, *inputs])
        if self.right is None:
            return left, operator(*inputs)
        return left, _ask(self.name, self.right, [operator, *inputs])


Law = Predicate | Equivalence


@overload
def property(name: str, holds: Function) -> Predicate: ...


@overload
def property(name: str, holds: None = None) -> Callable[[Function], Predicate]: ...


def property(
    name: str, holds: Function | None = None
) -> Predicate | Callable[[Function], Predicate]:
    """State a law about the output of an operator, for ``fuzz(properties=[…])``.

    Args:
        name: how reports call it.
        holds: called with the output and then the inputs, as many as it takes; returns a bool.
            Without it, ``property(name)`` is a decorator.

    Example:
        ``property("positive", lambda y: bool((y >= 0).all()))``
    """
    if holds is None:
        return lambda function: Predicate(name, function)
    return Predicate(name, holds)


def equivalent(name: str, left: Function, right: Function | None = None) -> Equivalence:
    """State that two computations agree up to rounding, for ``fuzz(properties=[…])``.

    Args:
        name: how reports call it.
        left: called with the operator and the inputs.
        right: the same; by default the plain call of the operator.

    Example:
        ``equivalent("flip", lambda f, x: f(x.flip(0)).flip(0))``
    """
    return Equivalence(name, left, right)


def _ask(name: str, function: Function, given: Sequence[object]) -> object:
    try:
        return function(*given)
    except AssertionError as error:
        return f"it raised AssertionError {error}".strip()
    except Exception as error:
        shapes = [tuple(x.shape) for x in given if isinstance(x, torch.Tensor)]
        raise UsageError(
            f"property {name!r} raised {type(error).__name__}: {error} (shapes {shapes}); "
            "a property must accept every input of the recipe"
        ) from error


def _truth(name: str, answer: object) -> bool:
    if isinstance(answer, torch.Tensor) and answer.numel() == 1:
        return bool(answer)
    if isinstance(answer, bool):
        return answer
    shape = f" of shape {tuple(answer.shape)}" if isinstance(answer, torch.Tensor) else ""
    raise UsageError(
        f"property {name!r} returned a {type(answer).__name__}{shape}: return one bool, "
        "e.g. bool((y >= 0).all())"
    )


def _positional(function: Function, most: int) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return most
    fixed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(most, sum(parameter.kind in fixed for parameter in parameters))


def _tensors(value: object) -> list[torch.Tensor]:
    return [x for x in flatten(value, "output").leaves if isinstance(x, torch.Tensor)]


def _rounded(value: object) -> object:
    """Change every element by one rounding: how far the result moves is its own uncertainty."""
    if not (isinstance(value, torch.Tensor) and is_differentiable(value)):
        return value
    return value.detach() * (1 + float(torch.finfo(value.dtype).eps))


def _change(new: torch.Tensor, old: torch.Tensor) -> float:
    if new.shape != old.shape or not is_differentiable(new):
        return 0.0
    return largest(new - old)

"""Finds out which sizes and dtypes of independent inputs belong together.

Recipes without shared symbols mostly draw shapes that no operator accepts: a matrix product wants
one size in common, an elementwise operator all of them. A few forward calls tell which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import torch

from ..inputs.operands import is_differentiable
from .recipe import is_fixed
from .sampling import InputSpace, Recipe, Sampler
from .subject import Subject

__all__ = ["fit_recipe"]

_DRAWS = 12
_ENOUGH = 0.9
_GAIN = 0.15
_ROUNDS = 3
_TRAILING_AXES = 3


def fit_recipe(recipe: Recipe, subject: Subject, seed: int) -> Recipe:
    """Return ``recipe`` with equalities that let the operator accept more of what is drawn.

    Only inputs, never results, are looked at: the reference (the candidate when there is none) is
    called forward, without a graph. A recipe that is accepted mostly, or that no equality helps,
    comes back as it is.
    """
    best, share = recipe, _accepted(recipe, subject, seed)
    for _ in range(_ROUNDS):
        if share >= _ENOUGH:
            break
        rated = [(_accepted(other, subject, seed), other) for other in _stricter(best)]
        top_share, top = max(rated, key=lambda pair: pair[0], default=(0.0, best))
        if top_share < share + _GAIN:
            break
        best, share = top, top_share
    return best


def _accepted(recipe: Recipe, subject: Subject, seed: int) -> float:
    function = subject.reference or subject.candidate
    sampler = Sampler(recipe, seed)
    count = 0
    for trial in range(_DRAWS):
        tensors = [x.detach() for x in sampler.case(trial).build()]
        try:
            with torch.no_grad():
                function(*subject.filled(tensors), **subject.kwargs)
        except Exception:  # whatever it is, the case is refused
            continue
        count += 1
    return count / _DRAWS


def _stricter(recipe: Recipe) -> Iterator[Recipe]:
    yield from _same_dtype(recipe)
    for first, second in combinations(range(len(recipe.inputs)), 2):
        left, right = _longest(recipe, first), _longest(recipe, second)
        yield from _linked(recipe, second, dict(zip(reversed(right), reversed(left), strict=False)))
        for axis in right[-_TRAILING_AXES:]:
            for other in left[-_TRAILING_AXES:]:
                yield from _linked(recipe, second, {axis: other})


def _same_dtype(recipe: Recipe) -> Iterator[Recipe]:
    floating = [
        space for space in recipe.inputs if is_differentiable(torch.empty(0, dtype=space.dtypes[0]))
    ]
    common = [
        dtype
        for dtype in (floating[0].dtypes if floating else ())
        if all(dtype in space.dtypes for space in floating)
    ]
    if common and any(len(space.dtypes) > len(common) for space in floating):
        yield replace(
            recipe,
            inputs=tuple(
                replace(space, dtypes=tuple(common)) if space in floating else space
                for space in recipe.inputs
            ),
        )


def _longest(recipe: Recipe, index: int) -> tuple[str, ...]:
    return max(recipe.inputs[index].axes, key=len)


def _linked(recipe: Recipe, index: int, names: dict[str, str]) -> Iterator[Recipe]:
    """Yield the recipe in which axes of input ``index`` are called like those of another one."""
    symbols = recipe.symbols
    for axis, other in names.items():
        sizes = symbols.get(axis, ()), symbols.get(other, ())
        if axis == other or is_fixed(axis) or is_fixed(other) or not set(sizes[0]) & set(sizes[1]):
            return
    if not names:
        return
    space = recipe.inputs[index]
    renamed = InputSpace(
        axes=tuple(tuple(names.get(axis, axis) for axis in axes) for axes in space.axes),
        sizes=tuple((names.get(axis, axis), sizes) for axis, sizes in space.sizes),
        dtypes=space.dtypes,
        layouts=space.layouts,
        values=space.values,
        requires_grad=space.requires_grad,
    )
    inputs = list(recipe.inputs)
    inputs[index] = renamed
    yield replace(recipe, inputs=tuple(inputs))

"""Recipes as Hypothesis strategies, for users' own ``@given`` tests (extra ``hypothesis``).

::

    from hypothesis import given
    from nabla_check.strategies import tensors

    @given(tensors(nabla.tensor(nabla.shapes("m k")), nabla.tensor(nabla.shapes("k n"))))
    def test_product(inputs):
        a, b = inputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import strategies as st

from nabla_core.errors import UsageError

from .fuzzing.recipe import Case, CaseInput, is_fixed
from .fuzzing.sampling import LANDMARKS, InputSpace, Recipe
from .inputs.specs import TensorSpec

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = ["cases", "tensors"]

_MOST_SEED = 2**31 - 1


def cases(*specs: TensorSpec, most: int = 65) -> SearchStrategy[Case]:
    """Return a strategy of cases; they shrink to small sizes, simple dtypes and layouts.

    Args:
        *specs: recipes by :func:`nabla_check.tensor`; equal symbols get equal sizes.
        most: largest size of a symbolic axis whose sizes are open.

    Raises:
        UsageError: no recipe was given.
    """
    if not specs:
        raise UsageError('cases() needs at least one recipe, e.g. nabla.tensor(nabla.shapes("m"))')
    return _draw_case(Recipe.of(specs), most)


def tensors(*specs: TensorSpec, most: int = 65) -> SearchStrategy[list[torch.Tensor]]:
    """Return a strategy of lists of tensors, one per recipe; see :func:`cases`.

    Raises:
        UsageError: no recipe was given.
    """
    return cases(*specs, most=most).map(lambda case: case.build())


@st.composite
def _draw_case(draw: DrawFn, recipe: Recipe, most: int) -> Case:
    # one dtype for all inputs with the same choices: an operator rarely takes a mixture
    dtypes = {choices: draw(st.sampled_from(choices)) for choices in _distinct(recipe)}
    inputs = tuple(_draw_input(draw, space, dtypes[space.dtypes]) for space in recipe.inputs)
    symbols = recipe.symbols
    used = dict.fromkeys(a for entry in inputs for a in entry.axes if not is_fixed(a))
    sizes = tuple((axis, _draw_size(draw, symbols[axis], most)) for axis in used)
    return Case(
        sizes=sizes,
        inputs=inputs,
        cotangent=draw(st.sampled_from(recipe.cotangents)),
        seed=draw(st.integers(0, _MOST_SEED)),
    )


def _distinct(recipe: Recipe) -> list[tuple[torch.dtype, ...]]:
    return list(dict.fromkeys(space.dtypes for space in recipe.inputs))


def _draw_input(draw: DrawFn, space: InputSpace, dtype: torch.dtype) -> CaseInput:
    differentiable = dtype.is_floating_point or dtype.is_complex
    return CaseInput(
        axes=draw(st.sampled_from(space.axes)),
        dtype=dtype,
        layout=draw(st.sampled_from(space.layouts)),
        values=draw(st.sampled_from(space.values)),
        requires_grad=differentiable and space.requires_grad is not False,
    )


def _draw_size(draw: DrawFn, choices: tuple[int, ...], most: int) -> int:
    if len(choices) == 1:
        return choices[0]
    if choices == LANDMARKS:
        # the wide branch comes first: one_of shrinks into it, so that a threshold is met exactly
        edges = [size for size in LANDMARKS if size <= most]
        return draw(st.one_of(st.integers(0, most), st.sampled_from(edges)))
    return draw(st.sampled_from(choices))

"""Which cases to try: landmark sizes first, every attribute in turn, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..inputs.layout_names import LAYOUTS, Layout
from ..inputs.specs import ShapeSpace, TensorSpec
from .recipe import Case, CaseInput, axis_size, is_fixed
from .values import FILLS, Fill, fills_within

__all__ = ["LANDMARKS", "InputSpace", "Recipe", "Sampler", "example_case", "simplest_dtypes"]

LANDMARKS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
"""Sizes around powers of two, where blocks end; used where the caller leaves the sizes open."""

_MOST_ELEMENTS = 8192
_SPECIAL_SHARE = 0.35
_STRIDED_COTANGENT_SHARE = 0.3
_DTYPES = (
    torch.float64,
    torch.float32,
    torch.complex128,
    torch.complex64,
    torch.bfloat16,
    torch.float16,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpace:
    """What one tensor may be; all choices the simplest first.

    Attributes:
        axes: names of the axes by rank; one entry unless ranks are free.
        sizes: choices for each symbolic axis; a single one for a fixed shape.
        dtypes: choices.
        layouts: choices; ``contiguous`` is always one when a case is made simpler.
        values: kinds of values.
        requires_grad: whether floating tensors are differentiated.
    """

    axes: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[str, tuple[int, ...]], ...]
    dtypes: tuple[torch.dtype, ...]
    layouts: tuple[Layout, ...]
    values: tuple[Fill, ...]
    requires_grad: bool | None

    @classmethod
    def of(cls, index: int, spec: TensorSpec) -> InputSpace:
        """Return the space of ``spec``, the input number ``index``."""
        axes, sizes = _axes(index, spec.shape)
        return cls(
            axes=axes,
            sizes=sizes,
            dtypes=simplest_dtypes(spec.dtypes),
            layouts=tuple(name for name in LAYOUTS if name in spec.layouts),
            values=_fills(spec),
            requires_grad=spec.requires_grad,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that may be tried.

    Attributes:
        inputs: one space per tensor.
        cotangents: memory layouts of the incoming gradient.
    """

    inputs: tuple[InputSpace, ...]
    cotangents: tuple[Layout, ...] = LAYOUTS

    @classmethod
    def of(cls, specs: Sequence[TensorSpec], cotangents: Sequence[Layout] = LAYOUTS) -> Recipe:
        """Return the recipe of these descriptions."""
        spaces = tuple(InputSpace.of(index, spec) for index, spec in enumerate(specs))
        return cls(inputs=spaces, cotangents=tuple(cotangents))

    @property
    def symbols(self) -> dict[str, tuple[int, ...]]:
        """Choices of size per symbolic axis; a symbol of several inputs keeps the common ones."""
        found: dict[str, tuple[int, ...]] = {}
        for space in self.inputs:
            for axis, sizes in space.sizes:
                known = found.get(axis, sizes)
                found[axis] = tuple(size for size in known if size in sizes) or known
        return found


class Sampler:
    """Draws the case of a trial from its number alone, so that trials can run anywhere.

    Choices of sizes are dealt like cards: within as many trials as there are choices, each is used.

    Args:
        recipe: what may be tried.
        seed: of the whole search.
        fitted: a stricter recipe for three trials out of four, see :func:`fit_recipe`.
    """

    def __init__(self, recipe: Recipe, seed: int, fitted: Recipe | None = None) -> None:
        self._seed = seed
        self._wide = recipe, recipe.symbols
        self._fitted = self._wide if fitted is None else (fitted, fitted.symbols)
        self._decks: dict[tuple[str, int, int], list[int]] = {}

    def recipe_of(self, trial: int) -> Recipe:
        """Return the recipe from which trial number ``trial`` is drawn."""
        return self._source(trial)[0]

    def _source(self, trial: int) -> tuple[Recipe, dict[str, tuple[int, ...]]]:
        return self._wide if trial % 4 == 3 else self._fitted

    def case(self, trial: int) -> Case:
        """Return the case of trial number ``trial``."""
        source = random.Random(self._seed * 1_000_003 + trial)
        recipe, symbols = self._source(trial)
        dtypes = _dtypes(recipe, source)
        inputs = tuple(
            _draw_input(space, dtype, source)
            for space, dtype in zip(recipe.inputs, dtypes, strict=True)
        )
        used = list(dict.fromkeys(a for x in inputs for a in x.axes if not is_fixed(a)))
        sizes = {axis: self._size(axis, symbols[axis], trial, source) for axis in used}
        _bound(sizes, inputs, symbols)
        strided = source.random() < _STRIDED_COTANGENT_SHARE
        return Case(
            sizes=tuple(sizes.items()),
            inputs=inputs,
            cotangent=source.choice(recipe.cotangents) if strided else "contiguous",
            seed=source.getrandbits(31),
        )

    def _size(self, axis: str, choices: tuple[int, ...], trial: int, source: random.Random) -> int:
        if len(choices) == 1:
            return choices[0]
        if choices == LANDMARKS and source.random() < 0.2:
            return source.randint(1, LANDMARKS[-1])
        block, place = divmod(trial, len(choices))
        key = (axis, len(choices), block)
        if key not in self._decks:
            deck = list(choices)
            random.Random(f"{self._seed} {axis} {block}").shuffle(deck)
            self._decks[key] = deck
        return self._decks[key][place]


def _dtypes(recipe: Recipe, source: random.Random) -> list[torch.dtype]:
    """Choose one dtype for all inputs with the same choices: mixing them is rarely meant."""
    chosen: dict[tuple[torch.dtype, ...], torch.dtype] = {}
    for space in recipe.inputs:
        if space.dtypes not in chosen:
            chosen[space.dtypes] = source.choice(space.dtypes)
    return [chosen[space.dtypes] for space in recipe.inputs]


def example_case(recipe: Recipe, seed: int) -> Case:
    """Return one ordinary case: small, different sizes; simplest dtype; contiguous memory."""
    source = random.Random(seed)
    inputs = tuple(
        replace(
            _draw_input(space, space.dtypes[0], source),
            axes=space.axes[-1],
            layout="contiguous",
            values=space.values[0],
        )
        for space in recipe.inputs
    )
    sizes: dict[str, int] = {}
    for axis, choices in recipe.symbols.items():
        ordinary = [size for size in choices if 2 < size <= 9] or [*choices]
        sizes[axis] = ordinary[len(sizes) % len(ordinary)]
    used = {axis for entry in inputs for axis in entry.axes}
    return Case(
        sizes=tuple((axis, size) for axis, size in sizes.items() if axis in used),
        inputs=inputs,
        cotangent="contiguous",
        seed=source.getrandbits(31),
    )


def simplest_dtypes(dtypes: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """Sort dtypes from the one in which a fault is easiest to read."""
    order = {dtype: rank for rank, dtype in enumerate(_DTYPES)}
    return tuple(sorted(dict.fromkeys(dtypes), key=lambda dtype: order.get(dtype, len(order))))


def _axes(
    index: int, shape: tuple[int, ...] | ShapeSpace
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, tuple[int, ...]], ...]]:
    if not isinstance(shape, ShapeSpace):
        names = _free_axes(index, len(shape))
        return (names,), tuple((name, (size,)) for name, size in zip(names, shape, strict=True))
    sizes = shape.dimensions
    if shape.recipe:
        names = shape.recipe
        choices = tuple(sorted(set(sizes))) if sizes else LANDMARKS
        return (names,), tuple((name, choices) for name in names if not is_fixed(name))
    ranks = tuple(sorted(set(shape.ranks)))
    longest = _free_axes(index, ranks[-1])
    choices = tuple(sorted(set(sizes or LANDMARKS)))
    axes = tuple(longest[len(longest) - rank :] for rank in ranks)
    return axes, tuple((name, choices) for name in longest)


def _free_axes(index: int, rank: int) -> tuple[str, ...]:
    """Name axes from the last one, so that dropping leading axes keeps the others' names."""
    return tuple(f"input{index}.axis-{rank - place}" for place in range(rank))


def _fills(spec: TensorSpec) -> tuple[Fill, ...]:
    found = {name for distribution in spec.distributions for name in fills_within(distribution)}
    return tuple(name for name in FILLS if name in found)


def _draw_input(space: InputSpace, dtype: torch.dtype, source: random.Random) -> CaseInput:
    differentiable = dtype.is_floating_point or dtype.is_complex
    special = source.random() < _SPECIAL_SHARE
    return CaseInput(
        axes=source.choice(space.axes),
        dtype=dtype,
        layout=source.choice(space.layouts),
        values=source.choice(space.values) if special else space.values[0],
        requires_grad=differentiable and space.requires_grad is not False,
    )


def _bound(
    sizes: dict[str, int], inputs: Sequence[CaseInput], choices: Mapping[str, tuple[int, ...]]
) -> None:
    """Make the first axes of a tensor small when it would have too many elements."""
    for entry in inputs:
        for axis in entry.axes:
            total = 1
            for name in entry.axes:
                total *= axis_size(name, sizes)
            if total <= _MOST_ELEMENTS:
                break
            if len(choices.get(axis, ())) > 1:
                sizes[axis] = min(size for size in choices[axis] if size)

"""Recipes of tensors: what to draw when the caller gives a description instead of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from nabla_core.errors import UsageError

from .layout_names import LAYOUTS, Layout
from .layouts import relayout

__all__ = ["Distribution", "ShapeSpace", "TensorSpec", "draw", "shapes", "tensor"]

Distribution = Literal["normal", "uniform", "positive", "ones", "zeros", "integers"]
_DISTRIBUTIONS = ("normal", "uniform", "positive", "ones", "zeros", "integers")
_LAYOUTS: dict[str, Layout] = {
    **{name: name for name in LAYOUTS},
    "broadcasted": "expanded",  # the name that another tool gave it
}
_SIZE = 5
"""Size of an axis in a single check when the sizes are left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSpace:
    """Shapes to choose from.

    Attributes:
        ranks: allowed numbers of axes.
        dimensions: allowed sizes of an axis; empty leaves them to the fuzzer.
        recipe: symbols instead, one per axis, shared between inputs, e.g. ``("m", "k")``.
    """

    ranks: tuple[int, ...] = (1, 2)
    dimensions: tuple[int, ...] = ()
    recipe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor to draw; several dtypes or layouts are choices for a fuzzer.

    Attributes:
        shape: sizes of the axes, or the space they come from.
        dtypes: choices; the first is used for a single check.
        layouts: choices; the first is used for a single check.
        distributions: choices; the first is used for a single check.
        requires_grad: by default whether the dtype is floating or complex.
    """

    shape: tuple[int, ...] | ShapeSpace
    dtypes: tuple[torch.dtype, ...]
    layouts: tuple[Layout, ...]
    distributions: tuple[Distribution, ...]
    requires_grad: bool | None


def shapes(
    recipe: str = "",
    *,
    ranks: Sequence[int] = (1, 2),
    dimensions: Sequence[int] = (),
) -> ShapeSpace:
    """Describe shapes by symbols (``"m k"``) or by ranks and sizes.

    Raises:
        UsageError: a rank or a size is negative, or there is none.
    """
    if not ranks or min((*ranks, *dimensions)) < 0:
        raise UsageError(
            f"shapes(ranks={tuple(ranks)}, dimensions={tuple(dimensions)}): needs at least one "
            "rank, and neither a rank nor a size can be negative"
        )
    return ShapeSpace(
        ranks=tuple(ranks), dimensions=tuple(dimensions), recipe=tuple(recipe.split())
    )


def tensor(
    shape: Sequence[int] | ShapeSpace = (5,),
    *,
    dtype: torch.dtype | Sequence[torch.dtype] | None = None,
    layout: str | Sequence[str] = "contiguous",
    distribution: Distribution | Sequence[Distribution] = "normal",
    requires_grad: bool | None = None,
) -> TensorSpec:
    """Describe a tensor to draw.

    Args:
        shape: sizes of the axes, or :func:`shapes`.
        dtype: one or several; float64 by default, int64 for ``distribution="integers"``.
        layout: one or several of contiguous, transposed, strided, sliced, expanded
            (also called broadcasted).
        distribution: one or several of normal, uniform (-1 to 1), positive (0.5 to 1.5), ones,
            zeros, integers (0 to 9).
        requires_grad: by default whether the dtype is floating or complex.

    Raises:
        UsageError: an unknown layout or distribution, or a negative size.
    """
    chosen = (distribution,) if isinstance(distribution, str) else tuple(distribution)
    names = (layout,) if isinstance(layout, str) else tuple(layout)
    for kind, given, known in (
        ("distribution", chosen, _DISTRIBUTIONS),
        ("layout", names, tuple(_LAYOUTS)),
    ):
        for name in given or ("",):
            if name not in known:
                raise UsageError(f"{kind}={name!r}: choose one of {', '.join(known)}")
    usual = torch.int64 if chosen[0] == "integers" else torch.float64
    dtypes = (dtype or usual,) if isinstance(dtype, torch.dtype | None) else tuple(dtype)
    sizes = shape if isinstance(shape, ShapeSpace) else tuple(shape)
    if not isinstance(sizes, ShapeSpace) and any(size < 0 for size in sizes):
        raise UsageError(f"shape={sizes}: a size cannot be negative")
    return TensorSpec(
        shape=sizes,
        dtypes=dtypes,
        layouts=tuple(_LAYOUTS[name] for name in names),
        distributions=chosen,
        requires_grad=requires_grad,
    )


def draw(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Draw a tensor with the first dtype, layout, rank and size of ``spec``."""
    if isinstance(spec.shape, ShapeSpace):
        rank = len(spec.shape.recipe) or spec.shape.ranks[0]
        sizes = (next(iter(spec.shape.dimensions), _SIZE),) * rank
    else:
        sizes = spec.shape
    dtype = spec.dtypes[0]
    dense = _values(spec.distributions[0], sizes, dtype, generator)
    drawn = relayout(dense, spec.layouts[0])
    wanted = spec.requires_grad
    if wanted is None:
        wanted = dtype.is_floating_point or dtype.is_complex
    return drawn.requires_grad_(wanted)


def _values(
    distribution: Distribution,
    sizes: tuple[int, ...],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> torch.Tensor:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    if distribution == "normal":
        return torch.randn(sizes, dtype=wide, generator=generator).to(dtype)
    if distribution in ("ones", "zeros"):
        return torch.full(sizes, float(distribution == "ones"), dtype=dtype)
    if distribution == "integers":
        return torch.randint(0, 10, sizes, generator=generator).to(dtype)
    unit = torch.rand(sizes, dtype=torch.float64, generator=generator)
    return (unit + 0.5 if distribution == "positive" else 2 * unit - 1).to(dtype)

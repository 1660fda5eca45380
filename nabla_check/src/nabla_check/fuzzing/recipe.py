"""A case: sizes, dtypes, layouts and kinds of values from which inputs are built, without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..inputs.layout_names import Layout
from ..inputs.layouts import relayout
from .values import Fill, fill

__all__ = ["Case", "CaseInput", "axis_size", "is_fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInput:
    """One tensor of a case.

    Attributes:
        axes: names of the axes; equal names have equal sizes, digits stand for themselves.
        dtype: of the tensor.
        layout: of its memory.
        values: kind of its values.
        requires_grad: whether it is differentiated.
    """

    axes: tuple[str, ...]
    dtype: torch.dtype
    layout: Layout
    values: Fill
    requires_grad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Inputs of one trial as a recipe: hashable, cheap to send to another process, exact.

    Attributes:
        sizes: ``(axis, size)``, sorted by first use.
        inputs: one per tensor.
        cotangent: memory layout of the gradient that comes in.
        seed: of all values.
    """

    sizes: tuple[tuple[str, int], ...]
    inputs: tuple[CaseInput, ...]
    cotangent: Layout
    seed: int

    @property
    def size_of(self) -> Mapping[str, int]:
        """Sizes by axis."""
        return dict(self.sizes)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of every tensor."""
        sizes = self.size_of
        return tuple(tuple(axis_size(axis, sizes) for axis in entry.axes) for entry in self.inputs)

    def with_sizes(self, changed: Mapping[str, int]) -> Case:
        """Return the case with other sizes of some axes."""
        return replace(
            self, sizes=tuple((axis, changed.get(axis, size)) for axis, size in self.sizes)
        )

    def with_inputs(self, inputs: Sequence[CaseInput]) -> Case:
        """Return the case with other tensors; sizes of axes that nobody uses are dropped."""
        used = {axis for entry in inputs for axis in entry.axes}
        kept = tuple((axis, size) for axis, size in self.sizes if axis in used)
        return replace(self, inputs=tuple(inputs), sizes=kept)

    def build(self) -> list[torch.Tensor]:
        """Draw the tensors; every call returns equal values in memory of their own."""
        generator = torch.Generator()
        drawn = []
        for index, (entry, shape) in enumerate(zip(self.inputs, self.shapes, strict=True)):
            generator.manual_seed(self.seed + index)
            dense = fill(entry.values, shape, entry.dtype, generator)
            tensor = dense if entry.layout == "contiguous" else relayout(dense, entry.layout)
            drawn.append(tensor.requires_grad_() if entry.requires_grad else tensor)
        return drawn

    def describe(self, names: Sequence[str] = ()) -> str:
        """Return one line, e.g. ``a (1, 9) float64; b (9, 1) float64 strided; seed 3``."""
        parts = []
        for index, (entry, shape) in enumerate(zip(self.inputs, self.shapes, strict=True)):
            name = names[index] if index < len(names) else f"input{index}"
            words = [name, str(shape), str(entry.dtype).removeprefix("torch.")]
            words += [entry.layout] if entry.layout != "contiguous" else []
            words += [entry.values] if entry.values != "normal" else []
            parts.append(" ".join(words))
        if self.cotangent != "contiguous":
            parts.append(f"{self.cotangent} incoming gradient")
        return "; ".join([*parts, f"seed {self.seed}"])

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "sizes": dict(self.sizes),
            "inputs": [
                {
                    "shape": list(shape),
                    "dtype": str(entry.dtype).removeprefix("torch."),
                    "layout": entry.layout,
                    "values": entry.values,
                    "requires_grad": entry.requires_grad,
                }
                for entry, shape in zip(self.inputs, self.shapes, strict=True)
            ],
            "cotangent": self.cotangent,
            "seed": self.seed,
        }


def is_fixed(axis: str) -> bool:
    """Whether an axis is a literal size and not a symbol."""
    return axis.isdigit()


def axis_size(axis: str, sizes: Mapping[str, int]) -> int:
    """Return the size of ``axis``; digits stand for themselves."""
    return int(axis) if is_fixed(axis) else sizes[axis]

"""Where the samples lie in a tensor, found by comparing two runs with different batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Layout", "StructureDiffers", "find_layout"]


class StructureDiffers(Exception):
    """The call did not scale with the batch, so its rows cannot be told apart by sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An axis of length ``samples * rows``.

    Attributes:
        dim: the axis.
        rows: entries of the axis per sample, e.g. the sequence length after a flatten.
        minor: whether the samples vary fastest along the axis (time-major flattening).
    """

    dim: int = 0
    rows: int = 1
    minor: bool = False

    def spread(self, tensor: Tensor, samples: int) -> Tensor:
        """Return shape ``[N, ...]``; each entry has the shape that a batch of one would have."""
        if self.minor:
            return _split(tensor, self.dim, (self.rows, samples)).movedim(self.dim + 1, 0)
        if self.dim == 0:  # the usual place, asked for at every layer: nothing has to be moved
            return (
                tensor.unsqueeze(1) if self.rows == 1 else _split(tensor, 0, (samples, self.rows))
            )
        return _split(tensor, self.dim, (samples, self.rows)).movedim(self.dim, 0)

    def gather(self, spread: Tensor) -> Tensor:
        """Undo :meth:`spread`."""
        if self.minor:
            return spread.movedim(0, self.dim + 1).flatten(self.dim, self.dim + 1)
        return spread.movedim(0, self.dim).flatten(self.dim, self.dim + 1)

    def fastest(self) -> Layout:
        """Return the same axis with the samples varying fastest."""
        return Layout(dim=self.dim, rows=self.rows, minor=True)


def _split(tensor: Tensor, axis: int, sizes: tuple[int, int]) -> Tensor:
    split: Tensor = tensor.unflatten(axis, sizes)  # type: ignore[no-untyped-call]
    return split


def find_layout(
    few: Sequence[int], few_samples: int, many: Sequence[int], many_samples: int
) -> Layout | None:
    """Return the axis that grew with the batch, ``None`` when the shape did not change.

    Args:
        few: shape in a run with ``few_samples``.
        few_samples: batch size of that run.
        many: shape of the same value in a run with ``many_samples``.
        many_samples: batch size of that run; another one.

    Raises:
        StructureDiffers: the shapes differ in any other way.
    """
    if len(few) != len(many):
        raise StructureDiffers(f"shapes {tuple(few)} and {tuple(many)} have different ranks")
    grown = [axis for axis, (a, b) in enumerate(zip(few, many, strict=True)) if a != b]
    if not grown:
        return None
    axis = grown[0]
    rows, rest = divmod(few[axis], few_samples)
    if len(grown) > 1 or rest or many[axis] != rows * many_samples:
        raise StructureDiffers(
            f"shape {tuple(few)} for {few_samples} samples became {tuple(many)} "
            f"for {many_samples}: no single axis grew with the batch"
        )
    return Layout(dim=axis, rows=rows)

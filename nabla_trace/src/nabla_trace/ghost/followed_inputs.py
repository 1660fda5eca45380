"""Does the output of one sample depend on the input of another? Asked of the inputs themselves.

A recurrent layer over steps of time meets its weights in one call, so that its rows would not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..batches import Batch
from .call import Path, replaced, tensors_in
from .receivers import SEEDED

__all__ = ["followed_inputs", "others_feel"]

_NOTHING = 1e-6
"""Share of the largest gradient of an input below which one counts as none."""


def followed_inputs(batch: Batch, few: Batch) -> tuple[Batch, list[tuple[Tensor, int]]]:
    """Return the few samples with inputs that have gradients, and those inputs with their axis.

    Args:
        batch: all samples.
        few: some of them, in the same structure.
    """
    axes: dict[Path, int] = {}
    for path, tensor in tensors_in(batch.args, batch.kwargs):
        sizes = enumerate(tensor.shape)
        axis = next((axis for axis, size in sizes if size == batch.samples), None)
        if axis is not None and tensor.is_floating_point() and not tensor.requires_grad:
            axes[path] = axis
    inputs: list[tuple[Tensor, int]] = []

    def follow(path: Path, tensor: Tensor) -> Tensor:
        if path not in axes:
            return tensor
        leaf = tensor.detach().requires_grad_()
        inputs.append((leaf, axes[path]))
        return leaf.clone()  # a model may write into its input

    args, kwargs = replaced(few.args, few.kwargs, follow)
    return replace(few, args=args, kwargs=kwargs), inputs


def others_feel(
    inputs: Sequence[tuple[Tensor, int]],
    values: Sequence[Tensor],
    cotangents: Sequence[Tensor] | None,
) -> bool:
    """Whether the outputs of one sample have a gradient at the inputs of others.

    Args:
        inputs: of :func:`followed_inputs`.
        values: outputs.
        cotangents: zero but for the one sample.
    """
    if not inputs or not values:
        return False
    leaves = [leaf for leaf, _ in inputs]
    grads = torch.autograd.grad(
        list(values),
        leaves,
        None if cotangents is None else list(cotangents),
        retain_graph=True,
        allow_unused=True,
    )
    for (_, axis), grad in zip(inputs, grads, strict=True):
        if grad is None:
            continue
        first = grad.detach().abs().movedim(axis, 0)
        lengths = first.reshape(len(first), -1).amax(1)
        rest = torch.cat([lengths[:SEEDED], lengths[SEEDED + 1 :]])
        if bool((rest > _NOTHING * lengths.max()).any()):
            return True
    return False

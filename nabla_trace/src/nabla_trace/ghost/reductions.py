"""How a loss of the whole batch puts its samples together: found out by parts of the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..batches import Batch, LossFunction, part_of
from .loops import Reduction

__all__ = ["Composition", "find_composition"]

_ROUNDINGS = 256
"""Roundings of the loss by which two ways of adding up the same losses may differ."""


@dataclass(frozen=True, slots=True)
class Composition:
    """How a loss is put together.

    Attributes:
        reduction: mean, sum, or unknown.
        off: for a loss that is neither, how far the mean of its parts is from it, relative to it;
            else 0.
        limit: largest such distance for a mean.
    """

    reduction: Reduction
    off: float = 0.0
    limit: float = 0.0


def find_composition(
    batch: Batch, output: object, loss_fn: LossFunction | None, loss: Tensor
) -> Composition:
    """Compare the loss of a batch with those of its first third and of the rest.

    A mean over the weights of classes, over the targets that are not ignored, a root of a mean, a
    comparison of samples: all are neither mean nor sum of what the parts give.

    Args:
        batch: the batch.
        output: of the model, all samples.
        loss_fn: ``None`` when the model returns its loss: nothing can be found out then.
        loss: of the whole batch, one number.
    """
    unknown = Composition("unknown")
    if loss_fn is None or loss.numel() != 1:
        return unknown
    first = max(1, batch.samples // 3)
    parts = [range(first), range(first, batch.samples)]
    try:
        with torch.no_grad():
            found = [
                float(batch.take(part).loss(part_of(output, part, batch.samples), loss_fn))
                for part in parts
            ]
    except Exception:  # a loss may refuse a part of a batch in any way
        return unknown
    whole, shares = float(loss.detach()), [len(part) / batch.samples for part in parts]
    if not math.isfinite(whole):
        return unknown
    mean = sum(share * one for share, one in zip(shares, found, strict=True))
    limit = _ROUNDINGS * float(torch.finfo(loss.dtype).eps)
    scale = sum(map(abs, found)) + abs(whole)
    if abs(mean - whole) <= limit * scale:
        return Composition("mean" if scale else "unknown")
    if abs(sum(found) - whole) <= limit * scale:
        return Composition("sum")
    return Composition("unknown", abs(mean - whole) / scale if scale else 0.0, limit)

"""A backward pass for half of the samples: does their gradient stay in their own rows?

Two samples cannot tell: normalised over two, every value is the same and no gradient is left; told
apart from one other, there is nothing to choose; and two that change places may come back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..batches import outputs_in
from .bank import Bank, BankOptions
from .forward_pass import Subject
from .function_watch import FunctionWatch
from .layout import Layout, StructureDiffers, find_layout
from .receivers import Accumulator
from .squares import squares_by_autograd
from .tolerance import agrees, autocast_dtype, tolerance_of

__all__ = ["Seeds", "half_of", "others_reached", "seeds_at_losses", "seeds_at_outputs"]

Seeds = tuple[list[Tensor], list[Tensor] | None]
"""What is differentiated, with its cotangents; ``None`` for scalars."""


def half_of(samples: int) -> Tensor:
    """Return which samples are chosen, by chance: a mask ``[N]``."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(samples, dtype=torch.bool)
    mask[order[: max(1, samples // 2)]] = True
    return mask


def seeds_at_losses(losses: Tensor, chosen: Tensor) -> Seeds:
    """Return the sum of the losses of the chosen samples."""
    return [losses[chosen.to(losses.device)].sum()], None


def seeds_at_outputs(
    output: object, chosen: Tensor, shapes: Sequence[tuple[int, ...]], few: int
) -> Seeds:
    """Return the outputs that grow with the batch, with random cotangents of the chosen samples.

    Args:
        output: of the model, all samples.
        chosen: mask ``[N]``.
        shapes: of the tensors of an output for ``few`` samples.
        few: their number.
    """
    generator = torch.Generator().manual_seed(0)
    values, cotangents = [], []
    for value, shape in zip(outputs_in(output), shapes, strict=False):
        layout = _layout(shape, few, value, len(chosen))
        if layout is None or not value.requires_grad:
            continue
        noise = torch.randn(value.shape, generator=generator).to(value.device, value.dtype)
        layout.spread(noise, len(chosen))[~chosen] = 0
        values.append(value)
        cotangents.append(noise)
    return values, cotangents


def _layout(shape: tuple[int, ...], few: int, value: Tensor, samples: int) -> Layout | None:
    try:
        return find_layout(shape, few, tuple(value.shape), samples)
    except StructureDiffers:
        return None


def others_reached(
    subject: Subject,
    watch: FunctionWatch,
    receiver: Accumulator,
    seeds: Seeds,
    settings: tuple[frozenset[str], int],
) -> dict[str, str]:
    """Run backward once and keep the graph; return name → what is wrong.

    Args:
        subject: model and parameters.
        watch: of the forward pass.
        receiver: of its calls, which know their layouts.
        seeds: of the chosen samples.
        settings: names that are left out, and the elements that temporaries may have.
    """
    options = BankOptions(measure="norms", every_layer=True, budget=settings[1])
    bank = Bank(subject.names, watch.uses, watch.samples, options)
    bank.skipped = settings[0]
    receiver.bank, receiver.lasts = bank, True
    try:
        squares = squares_by_autograd(
            *seeds, subject.parameters, retain_graph=True, inner=lambda: watch.busy
        )
        bank.flush()
    except RuntimeError:
        return {}  # a graph that cannot be walked twice
    finally:
        receiver.bank, receiver.lasts = None, False
        receiver.problems.clear()
    if not math.isfinite(sum(squares.values())):
        return {}  # there is nothing to hold the rules against
    chosen = half_of(watch.samples)
    norms = {name: part.to(chosen.device) for name, part in bank.layers.items()}
    whole = sum(float(part.sum()) for part in norms.values())
    wrong = {}
    for name, part in norms.items():
        limit = tolerance_of(subject.parameters[name].dtype, autocast_dtype())
        own, others = float(part[chosen].sum()), float(part[~chosen].sum())
        if math.isnan(others):
            continue  # nothing times what is too large to be squared
        if not agrees(others, 0.0, scale=own, whole=whole, limit=limit):
            wrong[name] = "the gradient of one sample reaches the rows of another"
    return wrong

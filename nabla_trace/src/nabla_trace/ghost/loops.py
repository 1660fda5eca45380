"""Per-sample gradients one after the other: slow, needs no rule, and is always right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..batches import Batch, LossFunction
from .contribution import common_dtype
from .forward_pass import Subject
from .layout import StructureDiffers

__all__ = ["loop_rows", "per_sample_losses"]


def per_sample_losses(loss: Tensor, samples: int) -> Tensor | None:
    """Return the loss of each sample ``[N]``; ``None`` for a loss that is summed up already."""
    if loss.dim() == 0 or loss.shape[0] != samples:
        return None
    return loss if loss.dim() == 1 else loss.flatten(1).sum(1)


def loop_rows(
    subject: Subject,
    wanted: Mapping[str, Tensor],
    batch: Batch,
    loss_fn: LossFunction | None,
    why_not_alone: str = "",
) -> dict[str, Tensor]:
    """Return the gradients of every sample for the wanted parameters, ``[N, numel]`` each.

    With a loss per sample the batch runs once and its graph is walked once per sample. Else each
    sample runs alone, which is the same thing only while samples are independent.

    Raises:
        StructureDiffers: a sample would have to run alone and cannot.
    """
    rows: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for grads in _gradients(subject, list(wanted.values()), (batch, loss_fn), why_not_alone):
        for (name, parameter), grad in zip(wanted.items(), grads, strict=True):
            whole = torch.zeros_like(parameter) if grad is None else grad.detach()
            rows[name].append(whole.reshape(-1).to(common_dtype(whole)))
    return {name: torch.stack(parts) for name, parts in rows.items()}


def _gradients(
    subject: Subject,
    wanted: list[Tensor],
    given: tuple[Batch, LossFunction | None],
    why_not_alone: str,
) -> Iterator[tuple[Tensor | None, ...]]:
    batch, loss_fn = given
    output = subject.model(*batch.args, **batch.kwargs)
    losses = per_sample_losses(batch.loss(output, loss_fn), batch.samples)
    if losses is None and why_not_alone:
        raise StructureDiffers(why_not_alone)
    for sample in range(batch.samples):
        if losses is not None:
            loss, keep = losses[sample], True
        else:
            loss, keep = _loss_alone(subject, batch.take([sample]), loss_fn), False
        if not loss.requires_grad:
            yield (None,) * len(wanted)
            continue
        yield torch.autograd.grad(loss, wanted, retain_graph=keep, allow_unused=True)


def _loss_alone(subject: Subject, one: Batch, loss_fn: LossFunction | None) -> Tensor:
    try:
        return one.loss(subject.model(*one.args, **one.kwargs), loss_fn).sum()
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise StructureDiffers(f"a sample alone does not run: {error}") from error

"""Per-sample gradients one after the other: slow, needs no rule, and is always right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..batches import Batch, LossFunction
from .contribution import common_dtype
from .forward_pass import Subject
from .layout import StructureDiffers
from .tolerance import autocast_dtype, tolerance_of

__all__ = ["LoopRows", "Reduction", "loop_rows", "per_sample_losses"]

Reduction = Literal["none", "mean", "sum", "unknown"]
"""How a loss puts samples together; ``none`` is one loss per sample."""


def per_sample_losses(loss: Tensor, samples: int) -> Tensor | None:
    """Return the loss of each sample ``[N]``; ``None`` for a loss that is summed up already."""
    if loss.dim() == 0 or loss.shape[0] != samples:
        return None
    return loss if loss.dim() == 1 else loss.flatten(1).sum(1)


@dataclass(slots=True, kw_only=True)
class LoopRows:
    """Gradients of every sample, and whether they can be trusted.

    Attributes:
        rows: name → gradients ``[N, numel]``.
        losses: loss of each sample ``[N]``, if the loss says.
        reduction: of the loss.
        wrong: name → why its rows are not those of this batch.
    """

    rows: dict[str, Tensor] = field(default_factory=dict)
    losses: Tensor | None = None
    reduction: Reduction = "none"
    wrong: dict[str, str] = field(default_factory=dict)


def loop_rows(
    subject: Subject,
    wanted: Mapping[str, Tensor],
    batch: Batch,
    loss_fn: LossFunction | None,
    why_not_alone: str = "",
) -> LoopRows:
    """Return the gradients of every sample for the wanted parameters.

    With a loss per sample the batch runs once and its graph is walked once per sample. Else each
    sample runs alone, which is the same thing only while samples are independent: the sum of the
    rows is held against the gradient of the batch.

    Raises:
        StructureDiffers: a sample would have to run alone and cannot.
    """
    output = subject.model(*batch.args, **batch.kwargs)
    loss = batch.loss(output, loss_fn)
    losses = per_sample_losses(loss, batch.samples)
    leaves = list(wanted.values())
    if losses is not None:
        rows = _stacked(wanted, (_grads(one, leaves, keep=True) for one in losses))
        return LoopRows(rows=rows, losses=losses.detach())
    if why_not_alone:
        raise StructureDiffers(why_not_alone)
    whole = _stacked(wanted, [_grads(loss.sum(), leaves, keep=False)])
    alone = (
        _grads(_loss_alone(subject, batch.take([sample]), loss_fn), leaves, keep=False)
        for sample in range(batch.samples)
    )
    found = LoopRows(rows=_stacked(wanted, alone))
    _hold_against(found, {name: row[0] for name, row in whole.items()}, wanted)
    return found


def _grads(loss: Tensor, leaves: list[Tensor], *, keep: bool) -> tuple[Tensor | None, ...]:
    if not loss.requires_grad:
        return (None,) * len(leaves)
    return torch.autograd.grad(loss, leaves, retain_graph=keep, allow_unused=True)


def _stacked(
    wanted: Mapping[str, Tensor], gradients: Iterable[tuple[Tensor | None, ...]]
) -> dict[str, Tensor]:
    rows: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for grads in gradients:
        for (name, parameter), grad in zip(wanted.items(), grads, strict=True):
            whole = torch.zeros_like(parameter) if grad is None else grad.detach()
            dense = whole.to_dense() if whole.is_sparse else whole
            rows[name].append(dense.reshape(-1).to(common_dtype(dense)))
    return {name: torch.stack(parts) for name, parts in rows.items()}


def _hold_against(
    found: LoopRows, whole: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> None:
    """Find out whether the loss averages or sums, and where neither gives the batch's gradient."""
    sums = {name: rows.sum(0) for name, rows in found.rows.items()}
    samples = len(next(iter(found.rows.values())))
    kinds: tuple[tuple[Reduction, int], ...] = (("sum", 1), ("mean", samples))

    def off(name: str, factor: int) -> float:
        return float(torch.linalg.vector_norm(sums[name] - factor * whole[name]))

    found.reduction, factor = min(kinds, key=lambda kind: sum(off(n, kind[1]) ** 2 for n in sums))
    size = (
        factor * sum(float(torch.linalg.vector_norm(grad)) ** 2 for grad in whole.values()) ** 0.5
    )
    for name, rows in found.rows.items():
        relative, floor = tolerance_of(parameters[name].dtype, autocast_dtype())
        scale = float(torch.linalg.vector_norm(rows, dim=1).sum())
        if not off(name, factor) <= relative * scale + floor**0.5 * (size + scale):
            found.wrong[name] = (
                "run alone, the samples do not add up to the gradient of the batch: they depend on "
                "each other"
            )
    if len(found.wrong) == len(found.rows):
        found.reduction = "unknown"


def _loss_alone(subject: Subject, one: Batch, loss_fn: LossFunction | None) -> Tensor:
    try:
        return one.loss(subject.model(*one.args, **one.kwargs), loss_fn).sum()
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise StructureDiffers(f"a sample alone does not run: {error}") from error

"""Inner products of every sample's gradient with the mean gradient, in one forward-mode pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, jvp

from nabla_core.errors import UsageError

from .batches import Batch, LossFunction
from .ghost.forward_pass import Subject
from .ghost.loops import per_sample_losses
from .samples_result import SamplesResult
from .untouched import untouched

__all__ = ["project"]


def project(subject: Subject, batch: Batch, loss_fn: LossFunction | None) -> SamplesResult:
    """Return ``<g_i, mean g>`` for every sample; no layer rule is needed.

    Args:
        subject: model and parameters.
        batch: the batch.
        loss_fn: loss per sample.

    Raises:
        UsageError: the loss is not per sample, or an operator has no forward mode.
    """
    values = {name: parameter.detach() for name, parameter in subject.parameters.items()}

    def losses(chosen: dict[str, Tensor]) -> Tensor:
        output = functional_call(subject.model, chosen, batch.args, dict(batch.kwargs))
        found = per_sample_losses(batch.loss(output, loss_fn), batch.samples)
        if found is None:
            raise UsageError("method='jvp' needs a loss per sample: use reduction='none'")
        return found

    with untouched(subject.modules) as start:
        mean = losses(dict(subject.parameters)).mean()
        found = torch.autograd.grad(mean, list(subject.parameters.values()), allow_unused=True)
        direction = {
            name: torch.zeros_like(values[name]) if grad is None else grad
            for name, grad in zip(values, found, strict=True)
        }
        start.again()
        try:
            found_both = jvp(losses, (values,), (direction,))
        except RuntimeError as error:
            raise UsageError(f"method='jvp': no forward-mode derivative: {error}") from error
    square = sum(float(grad.double().square().sum()) for grad in direction.values())
    return SamplesResult(
        samples=batch.samples,
        method="jvp",
        projections=found_both[1].detach(),
        losses=found_both[0].detach(),
        coverage=dict.fromkeys(values, "forward mode"),
        batch_norm=square**0.5 * batch.samples,
    )

"""What a replayed step says about itself, beyond the state that is fingerprinted anyway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from nabla_core.errors import UsageError

from ..capturing.arguments import batch_of, loss_of, tensors_of
from ..capturing.look import StepFacts

__all__ = ["ReplayObservation", "facts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayObservation:
    """Extra evidence of a replayed step; what is left out is not compared.

    Attributes:
        loss: value of the loss.
        tensors: further tensors by name, as given to ``record_step``.
        batch_indices: indices of the samples, or what else identifies the batch.
        data_state: state of the data, as given to ``record_step``.
    """

    loss: float | Tensor | None = None
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    batch_indices: Iterable[int] | Tensor | str | None = None
    data_state: object = None


def facts_of(step: int, returned: object) -> StepFacts:
    """Return what a step function said.

    Args:
        step: number of the step.
        returned: an observation; a loss; a mapping from name to tensor; or nothing.

    Raises:
        UsageError: it is something else.
    """
    found = _observation(returned)
    return StepFacts(
        step=step,
        loss=loss_of(found.loss),
        batch=batch_of(found.batch_indices),
        tensors=tensors_of(found.tensors),
        data_state=found.data_state,
    )


def _observation(returned: object) -> ReplayObservation:
    if isinstance(returned, ReplayObservation):
        return returned
    if returned is None:
        return ReplayObservation()
    if isinstance(returned, Mapping):
        return ReplayObservation(tensors=returned)
    if isinstance(returned, (tuple, list)) and returned:
        return _observation(returned[0])  # (loss, outputs, ...)
    if isinstance(returned, (int, float)) or hasattr(returned, "__float__"):
        return ReplayObservation(loss=loss_of(returned))
    raise UsageError(
        f"the step returned a {type(returned).__name__}: needs a loss, a ReplayObservation, a "
        "mapping from name to tensor, or nothing"
    )

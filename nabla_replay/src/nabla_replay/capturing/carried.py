"""Whether gradients were computed since a step was recorded, without watching for it."""

from __future__ import annotations

from itertools import islice

from torch import Tensor
from torch.utils.weak import TensorWeakRef

from .parts import Parts

__all__ = ["CarriedGradients"]

_LOOKED_AT = 8  # parameters: the first ones may be frozen, or their gradients cleared


class CarriedGradients:
    """Remembers one gradient as it is when a step is recorded.

    A program that adds up the gradients of several batches may do so over the end of an epoch: the
    batches after its last step belong to the first step of the next one. Batches that it only took
    belong to none.

    Args:
        parts: the program.
    """

    def __init__(self, parts: Parts) -> None:
        groups = (group for optimizer in parts.optimizers for group in optimizer.param_groups)
        held = (parameter for group in groups for parameter in group["params"])
        self._parameters: tuple[Tensor, ...] = tuple(
            islice((one for one in held if one.requires_grad), _LOOKED_AT)
        )
        self._seen: TensorWeakRef | None = None  # a gradient takes memory
        self._version = 0

    def note(self) -> None:
        """A step was recorded."""
        gradient = self._first()
        self._seen = None if gradient is None else TensorWeakRef(gradient)
        self._version = 0 if gradient is None else gradient._version

    def changed(self) -> bool:
        """Whether there are other gradients now."""
        now = self._first()
        if now is None:
            return False
        seen: Tensor | None = None if self._seen is None else self._seen()
        return now is not seen or now._version != self._version

    def forget(self) -> None:
        """Keep nothing of the program alive."""
        self._parameters, self._seen = (), None

    def _first(self) -> Tensor | None:
        for parameter in self._parameters:
            gradient = parameter.grad
            if gradient is not None:
                return gradient
        return None

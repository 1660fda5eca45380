"""Calls of root modules without gradients while they are in training mode, with different data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..facts import ModuleFacts, Place
from ..loop.exact import sample_of, tensors_in
from ..loop.watch import Watch
from ..taps.place import user_place

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["EvaluationFacts", "EvaluationWatch"]

_MAX_BATCHES = 64
_WITHOUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFacts:
    """Calls without gradients in training mode, between two calls with gradients.

    Attributes:
        module: the root module.
        batches: how many different batches.
        usual: whether the program does it in nearly every step.
        place: where it was called.
    """

    module: ModuleFacts
    batches: int
    usual: bool
    place: Place | None


class EvaluationWatch(Watch):
    """Collects such calls; complete when the module is next called with gradients, or at the end.

    Attributes:
        finished: those that are complete, since a detector last looked.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.finished: list[EvaluationFacts] = []
        self._pending: dict[int, tuple[RootRecord, set[bytes], Place | None]] = {}
        self._without: Counter[int] = Counter()  # steps without such a call
        self._trained: set[int] = set()
        self._sampled: set[int] = set()

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset({"forward_ended", "step_ended"})

    def stop(self) -> None:
        """The last evaluation is complete."""
        for key in tuple(self._pending):
            self._complete(key)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """What led to a step was no evaluation: a generator that samples for its critic."""
        self._pending.clear()
        self._without.update(self._trained - self._sampled)
        self._trained.clear()
        self._sampled.clear()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Note a call without gradients, or complete those before a call with gradients."""
        key = id(root)
        if torch.is_grad_enabled():
            self._trained.add(key)
            if key in self._pending:
                self._complete(key)
            return
        if not module.training:
            self._pending.pop(key, None)
            return
        if not root.facts.mode_dependent or not root.facts.ever_trained or _recalibrates(module):
            return
        self._sampled.add(key)
        found = self._pending.get(key)
        if found is None:
            found = self._pending[key] = (root, set(), user_place())
        if len(found[1]) < _MAX_BATCHES:
            found[1].add(_fingerprint(args, kwargs))

    def _complete(self, key: int) -> None:
        found = self._pending.pop(key, None)
        if found is not None:
            root, batches, place = found
            self.finished.append(
                EvaluationFacts(
                    module=root.facts,
                    batches=len(batches),
                    usual=self._without[key] < _WITHOUT,
                    place=place,
                )
            )


def _recalibrates(module: Module) -> bool:
    """Whether running statistics are being averaged anew, which needs training mode."""
    return any(
        isinstance(found, nn.modules.batchnorm._BatchNorm) and found.momentum is None
        for found in module.modules()
    )


def _fingerprint(args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
    given = [tensor for _, tensor in tensors_in((args, dict(kwargs)))]
    return b"".join(bytes(_raw(tensor)) for tensor in given)


def _raw(tensor: Tensor) -> list[int]:
    sample = sample_of(tensor)
    if sample.dtype == torch.bool or not sample.numel():
        return sample.to(torch.uint8).tolist()
    values: list[int] = sample.contiguous().view(torch.uint8).tolist()
    return values

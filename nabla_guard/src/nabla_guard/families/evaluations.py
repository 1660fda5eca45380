"""Calls of root modules without gradients in which dropout is active, with different data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..facts import ModuleFacts, Place
from ..loop.exact import sample_of, tensors_in
from ..loop.watch import Watch
from ..taps.patching import Patches
from ..taps.place import user_place
from .always_on import AlwaysOn, Drop
from .mode_splits import is_split

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["EvaluationFacts", "EvaluationWatch"]

_MAX_BATCHES = 64
_MAX_CALLS = 512
_WITHOUT = 2
_DRAWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFacts:
    """Calls without gradients in training mode, or with a dropout that the evaluation mode does not
    reach, between two calls with gradients.

    Attributes:
        module: the root module.
        batches: how many different batches.
        usual: whether the program does it in nearly every step.
        repeated: whether a batch was given twice in a row, or each of them at least three times, as
            for the spread of stochastic predictions.
        place: where it was called.
        drop: the dropout that was active although the module was in evaluation mode.
        unreached: number of modules below it, if all were in training mode although the module was
            in evaluation mode; else 0.
    """

    module: ModuleFacts
    batches: int
    usual: bool
    repeated: bool
    place: Place | None
    drop: Drop | None = None
    unreached: int = 0


@dataclass(slots=True)
class _Pending:
    """An evaluation that goes on: how often each batch was given."""

    root: RootRecord
    place: Place | None
    drop: Drop | None = None
    unreached: int = 0
    batches: Counter[bytes] = field(default_factory=Counter)
    last: bytes | None = None
    calls: int = 0
    in_a_row: bool = False

    def add(self, batch: bytes) -> None:
        self.in_a_row = self.in_a_row or batch == self.last
        self.last = batch
        self.calls += 1
        if batch in self.batches or len(self.batches) < _MAX_BATCHES:
            self.batches[batch] += 1

    @property
    def repeated(self) -> bool:
        return self.in_a_row or min(self.batches.values()) >= _DRAWS


class EvaluationWatch(Watch):
    """Collects such calls; complete when the module is next called with gradients, or at the end.

    Attributes:
        finished: those that are complete, since a detector last looked.
    """

    patient = frozenset({"forward_ended", "step_ended"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.finished: list[EvaluationFacts] = []
        self._pending: dict[int, _Pending] = {}
        self._without: Counter[int] = Counter()  # steps without such a call
        self._trained: set[int] = set()
        self._sampled: set[int] = set()
        self._drops = AlwaysOn(self)

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        self._drops.start(patches)

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
        drop = self._drops.take()
        found = self._pending.get(key)
        parts = _unreached_parts(module) if drop is None else 0
        if not module.training and not (drop or parts):
            self._pending.pop(key, None)
            return
        if not module.training and found is not None and not (found.drop or found.unreached):
            self._pending.pop(key, None)
            return
        if not root.facts.ever_trained or not (drop or self._is_active(root, module)):
            return
        self._sampled.add(key)
        if found is None:
            place, unreached = user_place(), None if module.training else drop
            found = self._pending[key] = _Pending(root, place, unreached, parts)
        if found.calls < _MAX_CALLS:
            found.add(_fingerprint(args, kwargs))

    def _is_active(self, root: RootRecord, module: Module) -> bool:
        return bool(root.facts.mode_dependent) and not _recalibrates(module)

    def _complete(self, key: int) -> None:
        found = self._pending.pop(key, None)
        if found is not None:
            self.finished.append(
                EvaluationFacts(
                    module=found.root.facts,
                    batches=len(found.batches),
                    usual=self._without[key] < _WITHOUT,
                    repeated=found.repeated,
                    place=found.place,
                    drop=found.drop,
                    unreached=found.unreached,
                )
            )


def _unreached_parts(module: Module) -> int:
    """How many modules are below one in evaluation mode, if all of them are in training mode."""
    if module.training or not is_split(module):
        return 0
    return len(list(module.modules())) - 1


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

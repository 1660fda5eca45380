"""Each backward pass since the last steps: whose gradients it wrote, and from which batch."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..facts import Call
from ..loop.exact import tensors_in
from ..loop.gradients import GradientRecord
from ..loop.roots import RootRecord
from ..loop.signals import is_ordinary
from ..loop.watch import EVERY_EVENT, Watch
from .graph import leaf_of, nodes_from

if TYPE_CHECKING:
    from ..loop.live import LiveLoop

__all__ = ["BackwardFacts", "BackwardWatch", "fingerprint"]

_KEPT = 512
_EARLY_PASSES = 6
_SAMPLE = 64
_FEW = 4


@dataclass(slots=True, kw_only=True, eq=False)
class BackwardFacts:
    """One backward pass.

    Attributes:
        owners: ``id`` of the facts of each optimizer that holds a gradient it wrote.
        count: number of gradients it wrote.
        batch: fingerprint of what the root modules were called with since the previous pass;
            ``None`` when not taken.
        shapes: shapes of those tensors.
        other_leaf: whether it also wrote the gradient of a leaf that no optimizer or module holds.
        again: whether it began at the very loss of the pass before, and wrote the very same
            gradients.
        versions: counts in-place changes of the first parameters it wrote: two passes with the
            same number saw the same parameters.
    """

    owners: frozenset[int]
    count: int
    batch: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    other_leaf: bool = False
    again: bool = False
    versions: int = 0


class BackwardWatch(Watch):
    """Keeps the latest backward passes by their serial number (:attr:`.facts.Call.backward`).

    Attributes:
        passes: serial number and facts, the oldest first.
        attentive: set by a detector that wants fingerprints and leaves of the coming passes.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.passes: dict[int, BackwardFacts] = {}
        self.attentive = False
        self._batch: list[int] = []
        self._shapes: list[tuple[int, ...]] = []
        self._other_leaf = False
        self._seen = 0
        self._several = False  # passes in one step, whose batches are compared
        self._written: Sequence[GradientRecord] = ()
        self._owners: frozenset[int] = frozenset()
        self._loss: weakref.ref[Tensor] | None = None
        self._wrote: list[int] = []

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        if self._close:
            return frozenset()
        return frozenset({"forward_ended", "backward_started"}) if self._several else EVERY_EVENT

    @property
    def _close(self) -> bool:
        return self.attentive or self._seen < _EARLY_PASSES

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """See :class:`.watch.Watch`."""
        if self._close and torch.is_grad_enabled():
            tensors = [tensor for _, tensor in tensors_in([args, dict(kwargs)])]
            self._batch += [fingerprint(tensor) for tensor in tensors]
            self._shapes += [tuple(tensor.shape) for tensor in tensors]

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.watch.Watch`."""
        if self._close:
            self._other_leaf = any(map(self._is_other, _leaves(roots)))

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """See :class:`.watch.Watch`."""
        self._seen += 1
        self._several = self._several or any(map(_is_repeated, written[:1]))
        if written is not self._written:  # a calm loop gives the same list every time
            self._written = written
            self._owners = frozenset(
                id(found) for record in written for found in record.facts.optimizers
            )
        self.passes[call.backward] = BackwardFacts(
            owners=self._owners,
            count=len(written),
            batch=hash(tuple(self._batch)) if self._batch else None,
            shapes=tuple(self._shapes),
            other_leaf=self._other_leaf,
            again=self._close and self._is_again(roots, written),
            versions=sum([_version(record) for record in written[:_FEW]]),
        )
        if self._batch:
            self._batch, self._shapes = [], []
        self._other_leaf = False
        if len(self.passes) > _KEPT:
            self.passes = dict(list(self.passes.items())[_KEPT // 2 :])

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self.passes.clear()
        self._written, self._loss = (), None

    def _is_again(self, roots: Sequence[Tensor], written: Sequence[GradientRecord]) -> bool:
        """Whether a graph that was kept is run again, and remember what this pass was."""
        loss = roots[0] if len(roots) == 1 and roots[0].numel() == 1 else None
        wrote = list(map(id, written))
        before = None if self._loss is None else self._loss()
        same = loss is not None and before is loss and wrote == self._wrote
        self._loss, self._wrote = None if loss is None else weakref.ref(loss), wrote
        return same

    def _is_other(self, leaf: Tensor) -> bool:
        known = self.loop.gradients.known([leaf])
        return not known or not (known[0].facts.optimizers or known[0].facts.running)


def fingerprint(tensor: Tensor) -> int:
    """Return a hash of shape and of at most 64 evenly spaced elements; reads the tensor."""
    readable = is_ordinary(tensor) and tensor.layout is torch.strided and tensor.numel()
    if not readable:
        return hash(tuple(tensor.shape))
    flat = tensor.detach().reshape(-1)
    stride = max(1, flat.numel() // _SAMPLE)
    return hash((tuple(tensor.shape), *flat[::stride][:_SAMPLE].tolist()))


def _leaves(roots: Sequence[Tensor]) -> list[Tensor]:
    tops = [root.grad_fn for root in roots if root.grad_fn is not None]
    found = (leaf_of(node) for node in nodes_from(tops))
    return [leaf for leaf in found if leaf is not None]


def _is_repeated(record: GradientRecord) -> bool:
    """Whether an optimizer of this parameter has had two passes since its last step."""
    return any(
        [call.kind for call in found.calls].count("write") > 1 for found in record.facts.optimizers
    )


def _version(record: GradientRecord) -> int:
    parameter = record.ref()
    return 0 if parameter is None else parameter._version

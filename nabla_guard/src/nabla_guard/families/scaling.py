"""Gradient scalers: which gradients are still multiplied by a loss scale."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.optim import Optimizer

from ..facts import Call, OptimizerFacts, Place
from ..loop.gradients import GradientRecord
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .graph import nodes_from

if TYPE_CHECKING:
    from ..loop.live import LiveLoop

__all__ = ["ScalerWatch"]

_READY = 0
_EARLY_PASSES = 12
Scaler = torch.amp.GradScaler


class ScalerWatch(Watch):
    """Follows scaled losses from ``scale`` to ``update``.

    Attributes:
        ever: whether any scaler with a scale other than one was used.
        direct: optimizers whose step that is being closed was called directly, not through the
            scaler, on gradients that are still scaled; with the place of the call.
        mixed: optimizers that hold the gradients of a scaled and of an unscaled loss since the
            last ``update``; with the place of the backward call whose loss was not scaled.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.ever = False
        self.direct: dict[int, Place | None] = {}
        self.mixed: dict[int, Place | None] = {}
        self._open: weakref.ref[Scaler] | None = None
        self._stepping = 0
        self._scaled_nodes: list[Node] = []
        self._scaled_owners: set[int] = set()
        self._plain_owners: dict[int, Place | None] = {}
        self._is_scaled: bool | None = None
        self._passes = 0

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self.ever else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        self._stepping = 0
        patches.replace(Scaler, "scale", self._wrap_scale)
        patches.replace(Scaler, "step", self._wrap_step)
        patches.replace(Scaler, "update", self._wrap_update)

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self._end_window()

    @property
    def scale(self) -> float:
        """The open scaler's scale, 1 when there is none. Reads a tensor: cold path only."""
        scaler = None if self._open is None else self._open()
        return 1.0 if scaler is None else float(scaler.get_scale())

    def still_scaled(self, optimizer: Optimizer) -> bool:
        """Whether the gradients of ``optimizer`` are multiplied by a scale other than one."""
        scaler = None if self._open is None else self._open()
        if scaler is None:
            return False
        state = scaler._per_optimizer_states.get(id(optimizer), {})
        stage = getattr(state.get("stage"), "value", _READY)
        return stage == _READY and self.scale != 1.0

    def facts_still_scaled(self, facts: OptimizerFacts) -> bool:
        """:meth:`still_scaled` for the optimizer that ``facts`` are about."""
        record = self.loop.book.of(facts)
        optimizer = None if record is None else record.ref()
        return optimizer is not None and self.still_scaled(optimizer)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.watch.Watch`."""
        self._is_scaled = None
        if self._open is None and not self.ever or self._passes > _EARLY_PASSES:
            return
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        below = nodes_from(tops, stop=lambda node: _is_long(node))
        self._is_scaled = any(node in self._scaled_nodes for node in below)

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """See :class:`.watch.Watch`."""
        if self._is_scaled is None:
            return
        self._passes += 1
        owners = {id(found) for record in written for found in record.facts.optimizers}
        if self._is_scaled:
            self._scaled_owners |= owners
        else:
            self._plain_owners |= dict.fromkeys(owners, call.place or user_place())

    def step_started(self, record: object, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self.direct.clear()
        self.mixed.clear()
        if self._open is None:
            return
        facts = self.loop.stepping
        if facts is None:
            return
        if not self._stepping and self.still_scaled(optimizer):
            self.direct[id(facts)] = user_place()
        if id(facts) in self._scaled_owners and id(facts) in self._plain_owners:
            self.mixed[id(facts)] = self._plain_owners[id(facts)]

    def _end_window(self) -> None:
        self._open = None
        self._scaled_nodes = []
        self._scaled_owners = set()
        self._plain_owners = {}

    # ------------------------------------------------------------------ replaced methods
    def _wrap_scale(self, original: Replacement) -> Replacement:
        def scale(scaler: Scaler, outputs: object) -> object:
            scaled = original(scaler, outputs)
            self.guarded(lambda: self._note_scale(scaler, scaled))
            return scaled

        return scale

    def _note_scale(self, scaler: Scaler, scaled: object) -> None:
        if not scaler.is_enabled():
            return
        self._open = weakref.ref(scaler)
        if not self.ever:
            self.ever = True
            self.loop.calm.attend()
        several = scaled if isinstance(scaled, (tuple, list)) else (scaled,)
        self._scaled_nodes += [
            part.grad_fn
            for part in several
            if isinstance(part, Tensor) and part.grad_fn is not None
        ]

    def _wrap_step(self, original: Replacement) -> Replacement:
        def step(scaler: Scaler, optimizer: Optimizer, *args: object, **kwargs: object) -> object:
            self._stepping += 1
            try:
                return original(scaler, optimizer, *args, **kwargs)
            finally:
                self._stepping -= 1

        return step

    def _wrap_update(self, original: Replacement) -> Replacement:
        def update(scaler: Scaler, *args: object, **kwargs: object) -> object:
            outcome = original(scaler, *args, **kwargs)
            self.guarded(self._end_window)
            return outcome

        return update


def _is_long(node: Node) -> bool:
    """Whether a node computed more than one number: a scaled loss is found above all of them."""
    metadata = getattr(node, "_input_metadata", None)
    try:
        return not metadata or any(length != 1 for length in metadata[0].shape)
    except (TypeError, RuntimeError):  # symbolic or nested shape
        return True

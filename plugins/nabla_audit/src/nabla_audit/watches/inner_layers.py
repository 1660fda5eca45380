"""Layers that are made anew in each step, belong to no module, and are reached by the loss."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_guard.facts import Place
from nabla_guard.families.graph import leaf_of, nodes_from
from nabla_guard.loop.exact import looks_fresh
from nabla_guard.loop.watch import EVERY_EVENT, Watch
from nabla_guard.taps.patching import Patches, Replacement
from nabla_guard.taps.place import user_place

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord
    from nabla_guard.loop.live import LiveLoop

__all__ = ["InnerLayer", "InnerLayerWatch"]

_MAX_NOTED = 256


@dataclass(slots=True, kw_only=True, eq=False)
class InnerLayer:
    """A layer made at one line of the program.

    Attributes:
        module: its class name.
        place: the line that makes it.
        shape: shape of its first parameter with random values.
        steps: steps in a row in which a new one was made, with random values, and reached.
    """

    module: str
    place: Place
    shape: tuple[int, ...]
    steps: int = 0


class _Made(NamedTuple):
    """A parameter that was registered, and by whom."""

    parameter: weakref.ref[Tensor]
    module: weakref.ref[Module]
    name: str
    place: Place


class InnerLayerWatch(Watch):
    """Follows parameters that are registered once the training has begun.

    Attributes:
        layers: what was found, by place and class name.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.layers: dict[tuple[Place, str], InnerLayer] = {}
        self._made: dict[int, _Made] = {}
        self._reached: set[tuple[Place, str]] = set()

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`nabla_guard.loop.watch.Watch`."""
        return frozenset() if self._made or self._reached else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """Follow registration."""
        patches.replace(Module, "register_parameter", self._wrap_register)

    def stop(self) -> None:
        """Forget what was made for the step that never came."""
        self._made.clear()

    def _wrap_register(self, original: Replacement) -> Replacement:
        def register_parameter(module: Module, name: str, param: Tensor | None) -> object:
            outcome = original(module, name, param)
            if param is not None and self.loop.coming and len(self._made) < _MAX_NOTED:
                self.guarded(lambda: self._note(module, param))
            return outcome

        return register_parameter

    def _note(self, module: Module, parameter: Tensor) -> None:
        place = user_place()
        if place is not None and not parameter.is_meta:
            made = _Made(weakref.ref(parameter), weakref.ref(module), type(module).__name__, place)
            self._made[id(parameter)] = made

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See which of them the loss reaches."""
        if not self._made:
            return
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        for node in nodes_from(tops):
            leaf = leaf_of(node)
            made = None if leaf is None else self._made.get(id(leaf))
            if leaf is not None and made is not None and made.parameter() is leaf:
                self._reach(leaf, made)

    def _reach(self, parameter: Tensor, made: _Made) -> None:
        facts = self.loop.gradients.record(parameter).facts
        if facts.running or facts.ever_held or not looks_fresh(parameter):
            return
        holder = made.module()
        if any(holder is part for root in self.loop.roots.living for part in root.modules()):
            return  # only the parameter is new
        key = (made.place, made.name)
        self._reached.add(key)
        layer = InnerLayer(module=made.name, place=made.place, shape=tuple(parameter.shape))
        self.layers.setdefault(key, layer)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Count the steps in a row."""
        for key, layer in self.layers.items():
            layer.steps = layer.steps + 1 if key in self._reached else 0
        self._reached.clear()
        self._made.clear()

"""Values of the graph that were put into an ``nn.Parameter``, which begins a graph of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from nabla_guard.facts import ParameterFacts, Place
from nabla_guard.families.cuts import Cut
from nabla_guard.families.graph import leaf_of, nodes_from
from nabla_guard.loop.watch import Watch
from nabla_guard.taps.patching import Patches, Replacement
from nabla_guard.taps.place import user_place

if TYPE_CHECKING:
    from nabla_guard.loop.live import LiveLoop

__all__ = ["WRAPPED", "WrappedValueWatch"]

WRAPPED = "nn.Parameter"
"""The kind of such a cut."""

_MAX_WRAPS = 256
_TWICE = 2


class WrappedValueWatch(Watch):
    """Notes which parameters a value depends on that is made a parameter, in the first steps."""

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._wraps = 0
        self._seen: dict[int, tuple[set[int], Place | None]] = {}

    def start(self, patches: Patches) -> None:
        """Follow the making of parameters."""
        patches.replace(Parameter, "__new__", self._wrap_new)

    def cut(self, parameter: ParameterFacts) -> Cut | None:
        """Where values that depend on ``parameter`` were made a parameter, in two steps or more."""
        steps, place = self._seen.get(id(parameter), (set(), None))
        return Cut(place=place, kind=WRAPPED) if len(steps) >= _TWICE else None

    def _wrap_new(self, original: Replacement) -> Replacement:
        def __new__(cls: type[Parameter], *args: object, **kwargs: object) -> object:
            value = args[0] if args else kwargs.get("data")
            if isinstance(value, Tensor) and value.grad_fn is not None:
                self._found(value)
            return original(cls, *args, **kwargs)

        return __new__

    def _found(self, value: Tensor) -> None:
        if self._wraps < _MAX_WRAPS and not torch.compiler.is_compiling():
            self._wraps += 1
            self.guarded(lambda: self._note(value))

    def _note(self, value: Tensor) -> None:
        place, step = user_place(), self.loop.coming
        for node in nodes_from([] if value.grad_fn is None else [value.grad_fn]):
            leaf = leaf_of(node)
            if leaf is not None:
                key = id(self.loop.gradients.record(leaf).facts)
                self._seen.setdefault(key, (set(), place))[0].add(step)

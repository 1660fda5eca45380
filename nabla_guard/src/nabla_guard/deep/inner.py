"""Deep mode in one thread: leaf modules as in standard mode, and around them the dispatch mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..layers.bank import Bank
from ..layers.here import Here
from ..origin.naming import is_compiled
from .mode import Around, OpMode

if TYPE_CHECKING:
    from .watch import DeepWatch

__all__ = ["Again", "Inner"]


class Inner(Here):
    """Knows which module runs, and takes the range of a leaf's output from its last op."""

    whole = True
    direct = False  # the op may have been measured already, and the mode must be off the stack

    def __init__(self, watch: DeepWatch) -> None:
        super().__init__(watch)
        self.mode = OpMode(self, watch.table)
        self.loss = Around("", "loss")
        self.backward = Around("", "backward")
        self._deep = watch
        self._places: dict[int, Around] = {}
        self._inside = 0

    def around(
        self,
        call: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """See :class:`..taps.inside.Inside`."""
        mode = self.mode
        if is_compiled(module):
            return self._outside(call, module, args, kwargs)
        before, mode.around = mode.around, self._place(module)
        outermost = not self._inside
        self._inside += 1
        if outermost:
            mode.enter()
        try:
            output = call(module, *args, **kwargs)
            if not module._modules:
                self.ended(module, output)
            return output
        finally:
            self._inside -= 1
            mode.around = before
            if outermost:
                mode.leave()

    def again(
        self,
        call: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Call a module that a backward pass runs again: its ops are no news."""
        output = self._outside(call, module, args, kwargs)
        if not module._modules:
            self.recomputed(module, output)
        return output

    def heal(self) -> None:
        """Forget calls that were interrupted."""
        self._inside = 0

    def put(self, bank: Bank, tensor: Tensor, owner: int) -> None:
        """See :class:`..layers.here.Here`."""
        mode = self.mode
        if tensor is mode.last:
            bank.share(owner)
            return
        paused = mode.pause()
        try:
            with torch._C.DisableTorchFunction():  # modes of the program must not see ours
                bank.reduce(tensor, owner)
        finally:
            if paused:
                mode.resume()

    def close(self) -> None:
        """See :class:`..layers.here.Here`."""
        self.mode.leave()
        super().close()
        self._places.clear()

    def _outside(
        self,
        call: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Call without the mode: under it, the compiler would not run compiled code."""
        left = self.mode.leave()
        try:
            return call(module, *args, **kwargs)
        finally:
            if left:
                self.mode.enter()

    def _place(self, module: Module) -> Around:
        known = self._places.get(id(module))
        if known is None:
            key, places = id(module), self._places
            known = places[key] = self._deep.place(self.root, module)
            known.ref = weakref.ref(module, lambda _: places.pop(key, None))
        return known


class Again:
    """Inside of a call that a backward pass makes again (activation checkpointing)."""

    whole = True

    def __init__(self, inner: Inner) -> None:
        self.ended = inner.recomputed
        self.around = inner.again

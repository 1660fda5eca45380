"""The root of backward: every accumulating pass, however it was called.

All of ``Tensor.backward``, ``autograd.backward`` and ``autograd.grad`` look up the module global
``torch.autograd._engine_run_backward``, so replacing it also covers functions imported earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .patching import Patches, Replacement

if TYPE_CHECKING:
    from .wire import Wire

__all__ = ["BackwardTap", "in_backward", "in_transform"]

ENTRY = "_engine_run_backward"


def in_backward() -> bool:
    """Whether the autograd engine runs in this thread (recomputation, reentrant backward)."""
    return bool(torch._C._current_graph_task_id() != -1)


def in_transform() -> bool:
    """Whether a ``torch.func`` transform is active: its tensors must not outlive it."""
    return torch._C._functorch.peek_interpreter_stack() is not None


class BackwardTap:
    """Tells when an accumulating backward pass starts and ends."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the engine's entry; return what this version of torch lacks."""
        found = patches.replace(torch.autograd, ENTRY, self._wrap)
        return () if found else (f"torch.autograd.{ENTRY}",)

    def _wrap(self, original: Replacement) -> Replacement:
        wire = self._wire

        def run_backward(outputs: Sequence[Tensor], *args: object, **kwargs: object) -> object:
            if not wire.listeners or not kwargs.get("accumulate_grad"):
                return original(outputs, *args, **kwargs)
            keeper = wire.keeper
            if in_backward() or in_transform() or (keeper.enabled and keeper.busy):
                return original(outputs, *args, **kwargs)
            if not keeper.enabled:
                return self._watched(original, outputs, args, kwargs)
            keeper.backward_starts(outputs, args, kwargs)
            with keeper.backward():
                return self._watched(original, outputs, args, kwargs)

        return run_backward

    def _watched(
        self,
        original: Replacement,
        outputs: Sequence[Tensor],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        wire = self._wire
        roots = [root for root in outputs if isinstance(root, Tensor)]
        for listener in wire.listeners:
            try:
                listener.backward_started(roots)
            except Exception as error:
                wire.drop(listener, error)
        gradients = original(outputs, *args, **kwargs)
        for listener in wire.listeners:
            try:
                listener.backward_ended(roots)
            except Exception as error:
                wire.drop(listener, error)
        return gradients

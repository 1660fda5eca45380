"""The root of backward: every accumulating pass, however it was called.

All of ``Tensor.backward``, ``autograd.backward`` and ``autograd.grad`` look up the module global
``torch.autograd._engine_run_backward``, so replacing it also covers functions imported earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..origin.region import Region
from .patching import Patches, Replacement
from .transforms import in_transform
from .wire import DECLINED

if TYPE_CHECKING:
    from .wire import Wire

__all__ = ["BackwardTap", "in_backward"]

ENTRY = "_engine_run_backward"

_current_task = torch._C._current_graph_task_id


def in_backward() -> bool:
    """Whether the autograd engine runs in this thread (recomputation, reentrant backward)."""
    return bool(_current_task() != -1)


class BackwardTap:
    """Tells when an accumulating backward pass starts and ends.

    ``Tensor.backward`` is replaced only to take our own mode off the stack first: torch would send
    the call through it.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the engine's entry; return what this version of torch lacks."""
        patches.replace(Tensor, "backward", self._wrap_method)
        found = patches.replace(torch.autograd, ENTRY, self._wrap)
        return () if found else (f"torch.autograd.{ENTRY}",)

    def _wrap_method(self, original: Replacement) -> Replacement:
        wire = self._wire
        is_traced = torch.compiler.is_dynamo_compiling  # first: the compiler must see nothing else

        def backward(tensor: Tensor, *args: object, **kwargs: object) -> object:
            if is_traced():
                return original(tensor, *args, **kwargs)
            kept = wire.keeper.threads.kept if wire.keeper.enabled else None
            if kept is None or not kept.recorder.on:
                return original(tensor, *args, **kwargs)
            kept.recorder.leave_stack()
            try:
                return original(tensor, *args, **kwargs)
            finally:
                if kept.region is Region.LOSS and not kept.depth:
                    kept.recorder.enter_stack()  # no pass was watched: the loss goes on

        return backward

    def _wrap(self, original: Replacement) -> Replacement:
        wire = self._wire

        def run_backward(outputs: Sequence[Tensor], *args: object, **kwargs: object) -> object:
            if not wire.listeners or not kwargs.get("accumulate_grad"):
                return self._unwritten(original, outputs, args, kwargs)
            if wire.express is not None:
                gradients = wire.express.backward(original, outputs, args, kwargs)
                if gradients is not DECLINED:
                    return gradients
            keeper = wire.keeper
            kept = keeper.threads.kept if keeper.enabled else None
            busy = kept is not None and (kept.replaying or kept.in_backward)
            if busy or _current_task() != -1 or in_transform():
                return original(outputs, *args, **kwargs)
            if kept is None:
                return self._watched(original, outputs, args, kwargs)
            keeper.backward_starts(outputs, args, kwargs)
            try:
                return self._watched(original, outputs, args, kwargs)
            finally:
                keeper.backward_ends()

        return run_backward

    def _unwritten(
        self,
        original: Replacement,
        outputs: Sequence[Tensor],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Take derivatives that go to the caller, not into gradients."""
        results = original(outputs, *args, **kwargs)
        if self._wire.derived is not None:
            self._wire.derived(outputs, args, results)
        return results

    def _watched(
        self,
        original: Replacement,
        outputs: Sequence[Tensor],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        wire = self._wire
        roots = outputs
        if len(outputs) != 1 or type(outputs[0]) is not Tensor:
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

"""Calls that torch's own modes do not see: custom autograd functions and ``torch.func`` transforms.

A function mode sees the ops inside of them instead, which cannot be done again one by one: those of
a custom function ran without a graph, those of a transform on tensors that must not outlive it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch._functorch.apis as apis
import torch._functorch.eager_transforms as eager_transforms
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointFunction

from .backward import in_backward
from .patching import Patches, Replacement
from .transforms import in_transform

if TYPE_CHECKING:
    from ..origin.kept import Kept
    from .wire import Wire

__all__ = ["FunctionTap", "kept_by_listener"]

_TORCH = "torch."
_AGAIN = CheckpointFunction  # what it runs has no graph before the backward pass runs it again
_NO_ARGUMENTS = (None, False, False, ())  # of the engine: a transform has none of them


class FunctionTap:
    """Lets the keeper note such calls as a whole where the user's code makes them."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the choke points; return what this version of torch lacks."""
        points = (
            (Function, "apply", self._wrap_apply),
            (apis, "vmap_impl", self._wrap_transform),
            (eager_transforms, "grad_impl", self._wrap_derivative),
            (eager_transforms, "grad_and_value_impl", self._wrap_derivative),
        )
        return tuple(
            f"{owner.__name__}.{name}"
            for owner, name, wrap in points
            if not patches.replace(owner, name, wrap)
        )

    def _wrap_apply(self, original: Replacement) -> Replacement:
        is_traced = torch.compiler.is_dynamo_compiling  # first: the compiler must see nothing else

        def apply(cls: type[Function], *args: object, **kwargs: object) -> object:
            if is_traced():
                return original(cls, *args, **kwargs)
            if kept_by_listener(self._wire) is None or (
                cls.__module__.startswith(_TORCH) and cls is not _AGAIN
            ):
                return original(cls, *args, **kwargs)
            return self._wire.keeper.noted(partial(original, cls), args, kwargs)

        return apply

    def _wrap_transform(self, original: Replacement) -> Replacement:
        is_traced = torch.compiler.is_dynamo_compiling

        def transform(*args: object, **kwargs: object) -> object:
            kept = None if is_traced() else kept_by_listener(self._wire)
            if kept is None:
                return original(*args, **kwargs)
            before = kept.transforms
            outcome = self._wire.keeper.noted(original, args, kwargs)
            if kept.transforms != before and self._wire.derived is not None:
                self._wire.derived((), _NO_ARGUMENTS, outcome)
            return outcome

        return transform

    def _wrap_derivative(self, original: Replacement) -> Replacement:
        is_traced = torch.compiler.is_dynamo_compiling

        def counted(*args: object, **kwargs: object) -> object:
            keeper = self._wire.keeper
            if keeper.enabled:
                keeper.threads.kept.transforms += 1
            return original(*args, **kwargs)

        def derivative(*args: object, **kwargs: object) -> object:
            if is_traced():
                return original(*args, **kwargs)
            if kept_by_listener(self._wire) is None:
                return counted(*args, **kwargs)
            outcome = self._wire.keeper.noted(counted, args, kwargs)
            if self._wire.derived is not None:
                self._wire.derived((), _NO_ARGUMENTS, outcome)
            return outcome

        return derivative


def kept_by_listener(wire: Wire) -> Kept | None:
    """What is kept, if the user's own code is making the call and it is listened to."""
    keeper = wire.keeper
    kept = keeper.threads.kept if keeper.enabled else None
    if kept is None or not kept.recorder.on or in_backward() or in_transform():
        return None
    return kept

"""Steps of optimizers, clearing of gradients, and the making of optimizers."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from ..origin.policy import NonFiniteStop
from .patching import Patches, Replacement
from .place import count_on_stack
from .wire import DECLINED

if TYPE_CHECKING:
    from .wire import Wire

__all__ = ["OptimizerTap", "is_of_torch", "living_optimizers", "parameters_of"]

_STEP_CODE = Optimizer.profile_hook_step(lambda *args: None).__code__  # of every hooked step


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of all groups, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def is_of_torch(optimizer: Optimizer) -> bool:
    """Whether torch itself wrote the optimizer: then its step is all of its update."""
    return type(optimizer).__module__.startswith("torch.optim")


def living_optimizers() -> list[Optimizer]:
    """Find the optimizers that exist in the process. Walks all objects: tens of milliseconds."""
    return [
        found
        for found in gc.get_objects()
        if issubclass(type(found), Optimizer) and hasattr(found, "param_groups")
    ]


class _Stepping(threading.local):
    """The outermost optimizer that is stepping in this thread, and how many step inside it."""

    outermost: Optimizer | None = None
    inner: int = 0


class OptimizerTap:
    """Tells about outermost steps, ``zero_grad`` of optimizers and modules, and new optimizers."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._stepping = _Stepping()
        self._handles: list[RemovableHandle] = []

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Register the hooks; return what this version of torch lacks."""
        self._stepping = _Stepping()
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]
        wrappers = (
            (Optimizer, "zero_grad", self._wrap_zero_grad),
            (Module, "zero_grad", self._wrap_zero_grad),
            (Optimizer, "__init__", self._wrap_making),
            (Optimizer, "add_param_group", self._wrap_making),
        )
        return tuple(
            f"{owner.__name__}.{name}"
            for owner, name, wrap in wrappers
            if not patches.replace(owner, name, wrap)
        )

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # ------------------------------------------------------------------ steps
    def _before(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        stepping = self._stepping
        if stepping.outermost is not None and count_on_stack(_STEP_CODE) > 1:
            stepping.inner += 1
            return
        stepping.outermost, stepping.inner = optimizer, 0
        wire = self._wire
        closure = (len(args) > 1 or bool(kwargs)) and _has_closure(args, kwargs)
        if wire.express is not None and not closure and wire.express.step(optimizer):
            return
        wire.heal()
        if not closure and wire.keeper.enabled:
            wire.keeper.pause()  # a closure runs the user's own code
        for listener in wire.listeners:
            try:
                listener.step_started(optimizer, closure)
            except NonFiniteStop:
                self._abandon()
                raise
            except Exception as error:
                wire.drop(listener, error)

    def _abandon(self) -> None:
        """The step does not happen: the person asked to stop before it."""
        self._stepping.outermost = None
        self._wire.heal()

    def _after(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        stepping = self._stepping
        if stepping.inner:
            stepping.inner -= 1
            return
        if stepping.outermost is not optimizer:
            return  # attached in the middle of a step
        stepping.outermost = None
        closure = (len(args) > 1 or bool(kwargs)) and _has_closure(args, kwargs)
        wire = self._wire
        if wire.express is not None and not closure and wire.express.ended(optimizer):
            return
        for listener in wire.listeners:
            try:
                listener.step_ended(optimizer, closure)
            except NonFiniteStop:
                self._abandon()
                raise
            except Exception as error:
                wire.drop(listener, error)
        if wire.keeper.enabled:
            wire.keeper.step_ends(optimizer)

    # ------------------------------------------------------------------ replaced methods
    def _wrap_zero_grad(self, original: Replacement) -> Replacement:
        wire = self._wire
        is_traced = torch.compiler.is_dynamo_compiling

        def clear(
            owner: Optimizer | Module, args: tuple[object, ...], kwargs: dict[str, object]
        ) -> object:
            outcome = original(owner, *args, **kwargs)
            self._cleared(owner)
            return outcome

        def zero_grad(owner: Optimizer | Module, *args: object, **kwargs: object) -> object:
            if is_traced():
                return original(owner, *args, **kwargs)
            express = wire.express
            if express is not None:
                outcome = express.clear(original, owner, args, kwargs)
                if outcome is not DECLINED:
                    return outcome
            keeper = wire.keeper
            if not keeper.enabled or not keeper.threads.kept.recorder.on:
                return clear(owner, args, kwargs)
            return keeper.unnoted(clear, owner, args, kwargs)

        return zero_grad

    def _cleared(self, owner: Optimizer | Module) -> None:
        wire = self._wire
        keeper = wire.keeper
        if keeper.enabled and keeper.threads.kept.has_pass:
            keeper.cleared()
        for listener in wire.listeners:
            try:
                listener.gradients_cleared(owner)
            except Exception as error:
                wire.drop(listener, error)

    def _wrap_making(self, original: Replacement) -> Replacement:
        wire = self._wire

        def make(optimizer: Optimizer, *args: object, **kwargs: object) -> object:
            outcome = original(optimizer, *args, **kwargs)
            if hasattr(optimizer, "param_groups"):
                for listener in wire.listeners:
                    try:
                        listener.optimizer_made(optimizer)
                    except Exception as error:
                        wire.drop(listener, error)
            return outcome

        return make


def _has_closure(args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a step was given a closure; ``args[0]`` is the optimizer itself."""
    return (len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None

"""Calls of root modules, seen at the door of every module call.

A root is a module that the user's code calls; what it calls inside is not reported. Global forward
hooks would send every module of the model through torch's slow path, and hooks of a root would
travel into its copies and files; replacing ``Module.__call__`` does neither.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn import Module

from .inside import NOBODY, Inside
from .patching import Patches, Replacement
from .place import count_on_stack
from .transforms import in_transform
from .wire import DECLINED

if TYPE_CHECKING:
    from types import CodeType

    from .wire import Wire

__all__ = ["ForwardTap", "Running"]

_NOTED = "unpatched_nn_module_call"

_current_task = torch._C._current_graph_task_id


class Running(threading.local):
    """Whether a root module runs in this thread, and who looks inside it.

    Attributes:
        inside: who does; :data:`NOBODY`, or ``None`` while no root module runs.
    """

    inside: Inside | None = None


class ForwardTap:
    """Tells when a root module is called and when it has returned."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._running = Running()
        self._door: CodeType | None = None
        self._original: Replacement | None = None

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the methods; return what this version of torch lacks."""
        self._running = Running()
        wrappers = (("__call__", self._wrap_call), ("load_state_dict", self._wrap_load))
        return tuple(
            f"torch.nn.Module.{name}"
            for name, wrap in wrappers
            if not patches.replace(Module, name, wrap)
        )

    def remove(self) -> None:
        """Let the compiler know the plain method again if it was imported meanwhile."""
        noted = vars(sys.modules.get("torch._dynamo.utils", object))
        known = noted.get(_NOTED)
        if self._original is not None and getattr(known, "__code__", None) is self._door:
            sys.modules["torch._dynamo.utils"].__dict__[_NOTED] = self._original
        self._original = None

    def heal(self) -> None:
        """Forget a root that never returned because its thread of control was cut off."""
        running = self._running
        if running.inside is not None and (self._door is None or not count_on_stack(self._door)):
            running.inside = None

    def _wrap_call(self, original: Replacement) -> Replacement:
        running, enter, wire = self._running, self._call_root, self._wire
        is_traced = torch.compiler.is_dynamo_compiling  # first: the compiler must see nothing else

        def call(*args: Module, **kwargs: object) -> object:  # what comes after the module is any
            if is_traced():
                return original(*args, **kwargs)
            inside = running.inside
            if inside is NOBODY:
                return original(*args, **kwargs) if kwargs else original(*args)
            module = args[0]
            if inside is None:
                express = wire.express
                if express is not None and not kwargs:
                    output = express.call(original, module, args[1:], running)
                    if output is not DECLINED:
                        return output
                return enter(original, module, args[1:], kwargs)
            if inside.whole:
                return inside.around(original, module, args[1:], kwargs)
            output = original(*args, **kwargs) if kwargs else original(*args)
            if not module._modules:
                inside.ended(module, output)
            return output

        self._door, self._original = call.__code__, original
        return call

    def _call_root(
        self,
        original: Replacement,
        module: Module,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        wire, running = self._wire, self._running
        keeper = wire.keeper
        replaying = keeper.enabled and keeper.threads.kept.replaying
        if not wire.listeners or replaying or torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        apart = _current_task() != -1 or in_transform()
        if keeper.enabled and not apart:
            keeper.entered(module, args)
        running.inside = NOBODY
        output = None
        try:
            inside = self._inside(module)
            running.inside = inside or NOBODY
            if inside is None:
                output = original(module, *args, **kwargs)
            elif inside.whole:
                output = inside.around(original, module, args, kwargs)
            else:
                output = original(module, *args, **kwargs)
                if not module._modules:
                    inside.ended(module, output)
        finally:
            running.inside = None
            if output is not None and not apart:
                self._tell(module, args, kwargs, output)
            if keeper.enabled and not apart:
                keeper.left(module, args, kwargs, output)
        return output

    def _inside(self, root: Module) -> Inside | None:
        """Who looks inside a call of a root: the first one that wants to."""
        for insider in self._wire.insiders:
            inside = insider.begin(root)
            if inside is not None:
                return inside
        return None

    def _tell(
        self,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        """Tell that a root has returned ``output``."""
        wire = self._wire
        for listener in wire.listeners:
            try:
                listener.forward_ended(module, args, kwargs, output)
            except Exception as error:
                wire.drop(listener, error)

    def _wrap_load(self, original: Replacement) -> Replacement:
        wire = self._wire

        def load_state_dict(
            module: Module, state_dict: dict[str, object], *args: object, **kwargs: object
        ) -> object:
            outcome = original(module, state_dict, *args, **kwargs)
            keys = frozenset(state_dict)
            for listener in wire.listeners:
                try:
                    listener.state_loaded(module, keys)
                except Exception as error:
                    wire.drop(listener, error)
            return outcome

        return load_state_dict

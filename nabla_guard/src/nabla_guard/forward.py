"""Calls of root modules, seen through the global forward hooks.

A root is a module that the user's code calls; what it calls inside is not reported. The hooks do
almost nothing for inner modules and return at once while torch compiles, so they add no graph
break.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from .backward import in_backward, in_transform
from .patching import Patches, Replacement
from .place import count_on_stack

if TYPE_CHECKING:
    from .instrument import Instrument

__all__ = ["ForwardTap"]


class _Running(threading.local):
    """The root module that runs in this thread, and how often it has called itself."""

    root: Module | None = None
    again: int = 0


class ForwardTap:
    """Tells when a root module has returned."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._running = _Running()
        self._handles: list[RemovableHandle] = []

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Register the hooks; return what this version of torch lacks."""
        self._running = _Running()
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, with_kwargs=True, always_call=True),
        ]
        found = patches.replace(Module, "load_state_dict", self._wrap_load)
        return () if found else ("torch.nn.Module.load_state_dict",)

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def heal(self) -> None:
        """Forget a root that never returned because it was interrupted."""
        running = self._running
        if running.root is not None and not count_on_stack(Module._call_impl.__code__):
            running.root, running.again = None, 0

    def _enter(self, module: Module, args: object) -> None:
        if torch.compiler.is_compiling():
            return
        running = self._running
        if running.root is None:
            running.root = module
        elif running.root is module:
            running.again += 1

    def _leave(self, module: Module, args: tuple[object, ...], *rest: Any) -> None:
        """The forward hook; ``rest`` is ``kwargs, output``, or only the output after an exception:
        there torch forgets that a global hook asked for the keyword arguments."""
        if torch.compiler.is_compiling():
            return
        running = self._running
        if running.root is not module:
            return
        if running.again:
            running.again -= 1
            return
        running.root = None
        if len(rest) != 2 or rest[1] is None or in_backward() or in_transform():
            return
        kwargs, output = rest
        instrument = self._instrument
        for listener in instrument.listeners:
            try:
                listener.forward_ended(module, args, kwargs, output)
            except Exception as error:
                instrument.drop(listener, error)

    def _wrap_load(self, original: Replacement) -> Replacement:
        instrument = self._instrument

        def load_state_dict(
            module: Module, state_dict: dict[str, object], *args: object, **kwargs: object
        ) -> object:
            outcome = original(module, state_dict, *args, **kwargs)
            keys = frozenset(state_dict)
            for listener in instrument.listeners:
                try:
                    listener.state_loaded(module, keys)
                except Exception as error:
                    instrument.drop(listener, error)
            return outcome

        return load_state_dict

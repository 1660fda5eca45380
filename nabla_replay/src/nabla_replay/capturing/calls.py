"""Sees calls of a model for a short while, without becoming part of what a compiler compiles."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from .parts import Parts

__all__ = ["CallHook"]


class CallHook:
    """Tells of calls of a model or of a part of it, before they are executed.

    A hook on all modules would be compiled into a compiled model: there, the hook lies on what
    ``torch.compile`` returned, and parts are not seen.

    Args:
        parts: the program.
        called: told the module that is called.

    Attributes:
        is_on: whether calls are told of.
    """

    def __init__(self, parts: Parts, called: Callable[[Module], object]) -> None:
        self._wrappers = {id(one): (one, parts.model) for one in parts.wrappers}
        self._parts = frozenset(map(id, parts.model.modules()))
        self._called = called
        self._seeing = self._see
        self._handles: list[RemovableHandle] = []
        self._number: int | None = None
        self._hooks: dict[int, object] | None = None
        self.is_on = False

    def turn_on(self) -> None:
        """Begin to tell of calls."""
        if self.is_on:
            return
        self.is_on = True
        hooks = self._hooks
        if hooks is not None and self._number is not None:
            hooks[self._number] = self._seeing  # as it was registered, for a tenth of the time
        elif self._wrappers:
            for wrapper, _ in self._wrappers.values():
                self._handles.append(wrapper.register_forward_pre_hook(self._seeing))
        else:
            handle = register_module_forward_pre_hook(self._seeing)
            self._number, self._hooks = handle.id, handle.hooks_dict_ref()

    def turn_off(self) -> None:
        """Let go of torch."""
        if not self.is_on:
            return
        self.is_on = False
        if self._hooks is not None:
            self._hooks.pop(self._number, None)  # type: ignore[arg-type]
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _see(self, module: Module, args: tuple[object, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        wrapped = self._wrappers.get(id(module))
        if wrapped is not None:
            self._called(wrapped[1])
        elif id(module) in self._parts:
            self._called(module)

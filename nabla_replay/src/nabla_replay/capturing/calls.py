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
    """

    def __init__(self, parts: Parts, called: Callable[[Module], object]) -> None:
        self._wrappers = {id(one): (one, parts.model) for one in parts.wrappers}
        self._parts = frozenset(map(id, parts.model.modules()))
        self._called = called
        self._handles: list[RemovableHandle] = []

    @property
    def is_on(self) -> bool:
        """Whether calls are told of."""
        return bool(self._handles)

    def turn_on(self) -> None:
        """Begin to tell of calls."""
        if self._handles:
            return
        if not self._wrappers:
            self._handles.append(register_module_forward_pre_hook(self._see))
        for wrapper, _ in self._wrappers.values():
            self._handles.append(wrapper.register_forward_pre_hook(self._see))

    def turn_off(self) -> None:
        """Let go of torch."""
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

"""Regions of a program: what one call of a module computes by itself, between its children."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn import Module

from ..origin.module_calls import module_calls
from ..origin.naming import model_name, plain_path
from ..origin.nested import leaves
from ..taps.place import Line
from .limits import roundoff
from .mirrors import Mirrors, memory_of

__all__ = ["Frame", "Frames", "Leaving"]

Leaving = Callable[["Frame", Tensor, Tensor], None]
"""Told of a tensor that leaves a region, and of its mirror."""


class Frame:
    """One region while it runs.

    Attributes:
        number: serial number within the sample, the same in every execution of the step.
        module: path of the module; ``None`` outside of modules.
        model: class name of the root module.
        active: whether the region is mirrored.
        mirrors: the float64 values that it computed.
        shifted: the same from inputs that were moved by a few roundings; only for a close look.
        dtype: coarsest dtype of its results so far.
    """

    __slots__ = ("active", "checked", "dtype", "mirrors", "model", "module", "number", "shifted")

    def __init__(self, number: int, module: str | None, model: str) -> None:
        self.number = number
        self.module = module
        self.model = model
        self.active = True
        self.mirrors = Mirrors()
        self.shifted: Mirrors | None = None
        self.dtype = torch.float32
        self.checked: set[int] = set()

    def forget(self, tensor: Tensor) -> None:
        """Take the present value of a tensor for exact from now on."""
        self.mirrors.forget(tensor)
        if self.shifted is not None:
            self.shifted.forget(tensor)

    def computed(self, tensor: Tensor) -> None:
        """Note that an op of the region gave this tensor."""
        if roundoff(tensor.dtype) > roundoff(self.dtype):
            self.dtype = tensor.dtype
        key = memory_of(tensor)
        if key is not None:
            self.checked.discard(key)


class Frames:
    """The stack of regions.

    Args:
        leaving: told of what leaves a region.
        opened: told of a region that begins, to make it active or not.
        whole: take the whole step for one region.

    Attributes:
        place: line of what the user's loop called, where nothing of the user's runs inside of it.
    """

    def __init__(
        self, leaving: Leaving, opened: Callable[[Frame], None], *, whole: bool = False
    ) -> None:
        self._leaving = leaving
        self._opened = opened
        self._whole = whole
        self._paths: dict[int, str] = {}
        self._model = ""
        self._next = 0
        self._trail: list[str | None] = []
        self._stack: list[Frame] = []
        self.place: Line | None = None
        self._open(None)

    @property
    def top(self) -> Frame:
        """The region that runs now."""
        return self._stack[-1]

    @property
    def module(self) -> str | None:
        """Path of the module that runs now; ``None`` outside of modules."""
        return self._trail[-1]

    @property
    def outer(self) -> list[Frame]:
        """The regions that wait for this one to end."""
        return self._stack[:-1]

    def enter_root(self, root: Module) -> None:
        """Say which root module is called next."""
        self._model = model_name(root)
        self._paths = {id(module): plain_path(name) for name, module in root.named_modules()}

    def leave(self, tensor: Tensor) -> None:
        """A tensor is used outside of the region that runs now."""
        frame = self._stack[-1]
        key = memory_of(tensor) if frame.active else None
        if key is None or key in frame.checked:
            return
        mirror = frame.mirrors.of(tensor)
        if mirror is not None:
            frame.checked.add(key)
            self._leaving(frame, tensor, mirror)

    def followed(self) -> AbstractContextManager[None]:
        """Follow which module runs, during the block."""
        return module_calls(self._enter_module, self._leave_module)

    def _enter_module(self, module: Module, args: object) -> None:
        path = self._paths.get(id(module))
        path = self._trail[-1] if path is None else path
        if self._whole:
            self._trail.append(path)
            return
        if len(self._stack[-1].mirrors):
            for tensor in leaves(args):
                self.leave(tensor)
        self._open(path)

    def _leave_module(self, module: Module, args: object, output: object) -> None:
        if len(self._trail) == 1:
            return
        self._trail.pop()
        if self._whole:
            return
        if len(self._stack[-1].mirrors):
            for tensor in leaves(output):
                self.leave(tensor)
        self._stack.pop()

    def _open(self, path: str | None) -> None:
        frame = Frame(self._next, path, self._model if path is not None else "")
        self._next += 1
        self._opened(frame)
        self._stack.append(frame)
        self._trail.append(path)

"""Undoes what a re-execution changed outside of itself, so that the training goes on unchanged."""

from __future__ import annotations

import io
import operator
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

import torch
from torch import Tensor
from torch.nn import Module

from ..taps.structure import modules_of, parameters_in

__all__ = [
    "UndoLog",
    "attributes_kept",
    "buffers_swapped",
    "gradients_kept",
    "is_hooked_late",
    "muted",
    "own_modes_off",
]

_OURS = __name__.partition(".")[0] + "."

_CONTAINERS = frozenset({dict, list, set})


class UndoLog:
    """Contents of memory that was there before and is being written to.

    The memory that the re-execution has made itself is not worth keeping; everything else is copied
    before the first write and copied back at the end.
    """

    def __init__(self) -> None:
        self._own: dict[int, weakref.ref[Tensor]] = {}
        self._saved: dict[int, tuple[Tensor, Tensor]] = {}
        self._alive: list[torch.UntypedStorage] = []

    def made(self, tensor: Tensor) -> None:
        """Note that the re-execution allocated the memory of ``tensor``."""
        storage = _storage(tensor)
        if storage is not None:
            self._own[storage._cdata] = weakref.ref(tensor)

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the tensor of which ``tensor`` is a part, if the re-execution made it."""
        storage = _storage(tensor)
        reference = None if storage is None else self._own.get(storage._cdata)
        made = None if reference is None else reference()
        return tensor if made is None or made.numel() <= tensor.numel() else made

    def about_to_write(self, tensor: Tensor) -> None:
        """Keep the contents of ``tensor`` unless the re-execution made it."""
        storage = _storage(tensor)
        if storage is None or storage._cdata in self._own or storage._cdata in self._saved:
            return
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        self._saved[storage._cdata] = (whole, whole.clone())

    def __enter__(self) -> UndoLog:
        return self

    def __exit__(self, *reason: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Put the contents back, bit by bit."""
        with torch.no_grad():
            for whole, saved in self._saved.values():
                whole.copy_(saved)
        self._saved.clear()


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


@contextmanager
def buffers_swapped(kept: Iterable[tuple[Module, str, Tensor]]) -> Iterator[None]:
    """Let modules use the given buffers during the block; their own are not touched."""
    swapped: list[tuple[Module, str, Tensor | None]] = []
    try:
        for owner, name, value in kept:
            if name in owner._buffers:
                swapped.append((owner, name, owner._buffers[name]))
                owner._buffers[name] = value
        yield
    finally:
        for owner, name, original in swapped:
            owner._buffers[name] = original


@contextmanager
def attributes_kept(roots: Iterable[Module]) -> Iterator[None]:
    """Undo what a forward pass assigns: plain attributes, buffers and parameters of modules."""
    modules = [module for root in roots for module in modules_of(root)]
    kept = [(held := vars(module), held.copy(), _plain_containers(held)) for module in modules]
    parameters = [(parameter, parameter.data) for parameter in parameters_in(modules)]
    try:
        yield
    finally:
        for attributes, values, containers in kept:
            _put_back(attributes, values, containers)
        for parameter, data in parameters:
            if parameter.data_ptr() != data.data_ptr():
                parameter.data = data


def _plain_containers(attributes: dict[str, object]) -> list[tuple[object, object]]:
    """Return each plain container among attributes with a copy of it."""
    held = [value for value in attributes.values() if type(value) in _CONTAINERS]
    return [(value, value.copy()) for value in held]  # type: ignore[attr-defined]


def _put_back(
    attributes: dict[str, object], kept: dict[str, object], held: list[tuple[object, object]]
) -> None:
    for name in attributes.keys() - kept.keys():
        del attributes[name]
    attributes.update(kept)
    for value, contents in held:
        if (value or contents) and not _is_the_same(value, contents):
            _fill(value, contents)


def _is_the_same(value: object, contents: object) -> bool:
    """Whether a container holds the very objects that it held: tensors cannot be compared."""
    if isinstance(value, list) and isinstance(contents, list):
        return len(value) == len(contents) and all(map(operator.is_, value, contents))
    if isinstance(value, dict) and isinstance(contents, dict):
        return [*value] == [*contents] and all(map(operator.is_, value.values(), contents.values()))
    return value == contents


def _fill(value: object, contents: object) -> None:
    if isinstance(value, list):
        value[:] = cast("list[object]", contents)
    else:
        held = cast("dict[object, object]", value)
        held.clear()
        held.update(cast("dict[object, object]", contents))


@contextmanager
def gradients_kept(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Start the block without gradients; afterwards each ``.grad`` is the very tensor it was.

    Hooks that run after a gradient was accumulated are taken off meanwhile: they step optimizers
    and start collective operations.
    """
    kept = [(tensor, tensor.grad, _hooks(tensor)) for tensor in tensors]
    try:
        for tensor, _, hooks in kept:
            tensor.grad = None
            if hooks:
                cast("dict[int, object]", tensor._post_accumulate_grad_hooks).clear()
        yield
    finally:
        for tensor, grad, hooks in kept:
            tensor.grad = grad
            if hooks:
                cast("dict[int, object]", tensor._post_accumulate_grad_hooks).update(hooks)


def is_hooked_late(tensor: Tensor) -> bool:
    """Whether hooks run after a gradient of a tensor was accumulated."""
    return bool(_hooks(tensor))


def _hooks(tensor: Tensor) -> dict[int, object]:
    return dict(getattr(tensor, "_post_accumulate_grad_hooks", None) or {})


class _Muted(io.TextIOBase):
    """Swallows what one thread prints and passes on what the others do."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._thread:
            return len(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def muted() -> Iterator[None]:
    """Print nothing from this thread: the user's forward has already said it once."""
    out, err = sys.stdout, sys.stderr
    if out is not None:
        sys.stdout = cast(TextIO, _Muted(out))
    if err is not None:
        sys.stderr = cast(TextIO, _Muted(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


@contextmanager
def own_modes_off() -> Iterator[None]:
    """Take the function modes of the guard itself off this thread's stack; leave the user's."""
    before = [torch._C._pop_torch_function_stack() for _ in range(_length())][::-1]
    for mode in before:
        if not type(mode).__module__.startswith(_OURS):
            torch._C._push_on_torch_function_stack(mode)
    try:
        yield
    finally:
        for _ in range(_length()):
            torch._C._pop_torch_function_stack()
        for mode in before:
            torch._C._push_on_torch_function_stack(mode)


def _length() -> int:
    return torch._C._len_torch_function_stack()

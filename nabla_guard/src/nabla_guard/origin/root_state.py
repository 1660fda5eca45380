"""What is known of a root module between its calls: its parameters and copies of its buffers."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.nn import Module

__all__ = ["RootState"]

_SMALL_BYTES = 1 << 20
_LOOK_AGAIN_CALLS = 64


class RootState:
    """The parameters of a root module, and its buffers as they were before its last call.

    A buffer above 1 MiB is copied only after a call has changed it: masks and tables are constant,
    and a copy of each would cost memory for nothing. The lists are read again every 64 calls.

    Args:
        root: the module.
    """

    def __init__(self, root: Module) -> None:
        self.root = weakref.ref(root)
        self._calls = 0
        self._owners: list[tuple[weakref.ref[Module], str]] = []
        self._copies: dict[int, Tensor] = {}
        self._versions: list[int] = []
        self._parameters: list[weakref.ref[Tensor]] = []

    def called(self) -> None:
        """Count a call and read the module's lists again from time to time."""
        if self._calls % _LOOK_AGAIN_CALLS == 0:
            self._read()
        self._calls += 1

    @property
    def has_parameters(self) -> bool:
        """Whether it is a model, not only a function such as a loss."""
        return bool(self._parameters)

    @property
    def plain(self) -> bool:
        """Whether it has neither parameters nor buffers."""
        return not self._parameters and not self._owners

    def version(self) -> int:
        """Return a number that moves with every change in place of any parameter."""
        parameters = [reference() for reference in self._parameters]
        return sum([found._version for found in parameters if found is not None])

    def keep_buffers(self) -> None:
        """Copy the buffers that changed since the last time."""
        for index, (reference, name) in enumerate(self._owners):
            owner = reference()
            buffer = None if owner is None else owner._buffers.get(name)
            if buffer is None or buffer.is_inference():
                continue
            version, known = buffer._version, self._versions[index]
            if version == known:
                continue
            self._versions[index] = version
            if known != -1 or buffer.nbytes <= _SMALL_BYTES:
                self._copy(index, buffer)

    def kept_buffers(self) -> list[tuple[Module, str, Tensor]]:
        """Return owner, name and a fresh copy of each kept buffer."""
        found = []
        for index, kept in self._copies.items():
            reference, name = self._owners[index]
            owner = reference()
            if owner is not None:
                found.append((owner, name, kept.clone()))
        return found

    def _read(self) -> None:
        root = self.root()
        if root is None:
            return
        modules = list(root.modules())
        names = [(module, name) for module in modules for name in module._buffers]
        if [(id(module), name) for module, name in names] != [
            (id(reference()), name) for reference, name in self._owners
        ]:
            self._owners = [(weakref.ref(module), name) for module, name in names]
            self._versions = [-1] * len(names)
            self._copies.clear()
        self._parameters = [weakref.ref(parameter) for parameter in root.parameters()]

    def _copy(self, index: int, buffer: Tensor) -> None:
        known = self._copies.get(index)
        with torch.no_grad():
            if known is None or known.shape != buffer.shape or known.device != buffer.device:
                self._copies[index] = buffer.detach().clone()
            else:
                known.copy_(buffer)

"""What is known of a root module between its calls: its parameters and copies of its buffers."""

from __future__ import annotations

import weakref
from operator import attrgetter, call
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..taps.structure import modules_of, parameters_in

if TYPE_CHECKING:
    from .tape import Tape

__all__ = ["RootState", "buffer_of"]

_SMALL_BYTES = 1 << 20
_FIRST_CALLS = 3  # buffers may be made by the first ones
_LOOK_AGAIN_CALLS = 64
_version = attrgetter("_version")
_STEADY = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "activation",
        "batchnorm",
        "container",
        "conv",
        "flatten",
        "instancenorm",
        "linear",
        "loss",
        "normalization",
        "padding",
        "pooling",
        "sparse",
        "upsampling",
    )
)
_DRAWING = frozenset({"FractionalMaxPool2d", "FractionalMaxPool3d", "MultiheadAttention", "RReLU"})


def buffer_of(module: Module, name: str) -> Tensor | None:
    """Return a buffer that a module holds itself, if it is set; also of a scripted module."""
    try:
        return module._buffers[name]
    except KeyError:
        return None


class RootState:
    """The parameters of a root module, and its buffers as they were before its last call.

    A buffer above 1 MiB is copied only after a call has changed it: masks and tables are constant,
    and a copy of each would cost memory for nothing. The lists are read again every 64 calls.

    Attributes:
        root: the module.
        has_parameters: whether it is a model, not only a function such as a loss.
        plain: whether it has neither parameters nor buffers.
        draws: whether it may use random numbers: most of torch's own modules do not.
        has_buffers: whether any of its buffers is set.
        stale: calls of it may have passed unseen since its lists were read.

    Args:
        root: the module.
    """

    __slots__ = (
        "_calls",
        "_buffers",
        "_copies",
        "_owners",
        "_parameters",
        "_versions",
        "draws",
        "has_buffers",
        "has_parameters",
        "plain",
        "root",
        "stale",
    )

    def __init__(self, root: Module) -> None:
        self.root = weakref.ref(root)
        self.has_parameters = self.has_buffers = self.draws = False
        self.plain = self.stale = True
        self._calls = 0
        self._owners: list[tuple[weakref.ref[Module], str]] = []
        self._copies: dict[int, Tensor] = {}
        self._versions: list[int] = []
        self._buffers: list[weakref.ref[Tensor] | None] = []
        self._parameters: list[weakref.ref[Tensor]] = []

    def called(self) -> None:
        """Count a call and read the module's lists again from time to time."""
        calls = self._calls
        if self.stale or calls < _FIRST_CALLS or not calls % _LOOK_AGAIN_CALLS:
            self._read()
        self._calls = calls + 1

    def look_again(self) -> None:
        """Read the module's lists again."""
        self._read()

    def rest(self) -> None:
        """Let go of the copies: nobody watches for a while."""
        self.stale = True
        self._copies.clear()
        self._versions = [-1] * len(self._owners)
        self._buffers = [None] * len(self._owners)

    def version(self) -> int:
        """Return a number that moves with every change in place of any parameter."""
        try:
            return sum(map(_version, map(call, self._parameters)))
        except AttributeError:  # one of them is gone
            found = (reference() for reference in self._parameters)
            return sum(parameter._version for parameter in found if parameter is not None)

    def keep_for_call(self, tape: Tape, since: int) -> None:
        """Copy the buffers if the next call is the first of its step: later ones are done again
        from what an earlier one leaves.

        Calls without gradients, such as those of a validation, are forgotten once a buffer was
        written by hand after them: what they leave is not what the next call starts from.

        Args:
            tape: the step.
            since: number of the tape at which it began.
        """
        root = self.root()
        calls = [call for call in tape.calls_since(since) if call.module is root]
        if calls and self._is_written(tape, calls[-1].number):
            if any(call.ambient.grad for call in calls):
                tape.problem("a buffer was written between two calls of the model")
                return
            gone = {call.number for call in calls}
            tape.keep_only(lambda entry: entry.number not in gone)
            calls.clear()
        if not calls:
            self.keep_buffers()

    def _is_written(self, tape: Tape, number: int) -> bool:
        """Whether a buffer was written by hand after the entry with this number."""
        if not tape.has_writes:
            return False
        owners = ((reference(), name) for reference, name in self._owners)
        buffers = (buffer_of(owner, name) for owner, name in owners if owner is not None)
        writes = [tape.written(buffer) for buffer in buffers if buffer is not None]
        return any(write is not None and write.number >= number for write in writes)

    def keep_buffers(self) -> None:
        """Copy the buffers that changed since the last time."""
        for index, (reference, name) in enumerate(self._owners):
            owner = reference()
            buffer = None if owner is None else buffer_of(owner, name)
            if buffer is None or buffer.is_inference():
                continue
            version, known = buffer._version, self._versions[index]
            if version == known and self._is_same(index, buffer):
                continue
            self._versions[index] = version
            self._buffers[index] = weakref.ref(buffer)
            if known != -1 or buffer.nbytes <= _SMALL_BYTES:
                self._copy(index, buffer)

    def _is_same(self, index: int, buffer: Tensor) -> bool:
        """Whether a buffer is the very tensor of the last time: one may be assigned anew."""
        reference = self._buffers[index]
        return reference is not None and reference() is buffer

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
        self.stale = False
        modules = modules_of(root)
        names = [(module, name) for module in modules for name, _ in module._buffers.items()]
        if [(id(module), name) for module, name in names] != [
            (id(reference()), name) for reference, name in self._owners
        ]:
            self._owners = [(weakref.ref(module), name) for module, name in names]
            self._versions = [-1] * len(names)
            self._buffers = [None] * len(names)
            self._copies.clear()
        self._parameters = [*map(weakref.ref, parameters_in(modules))]
        self.has_parameters = bool(self._parameters)
        self.plain = not self._parameters and not self._owners
        self.has_buffers = any(owner._buffers[name] is not None for owner, name in names)
        self.draws = not all(map(_is_steady, modules))

    def _copy(self, index: int, buffer: Tensor) -> None:
        known = self._copies.get(index)
        with torch.no_grad():
            if known is None or known.shape != buffer.shape or known.device != buffer.device:
                self._copies[index] = buffer.detach().clone()
            else:
                known.copy_(buffer)


def _is_steady(module: Module) -> bool:
    """Whether a module, apart from those inside of it, certainly uses no random numbers."""
    kind = type(module)
    own = kind.__module__ in _STEADY and kind.__name__ not in _DRAWING
    hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
    return own and not hooked

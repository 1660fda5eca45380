"""The ranges that one thread gathers while its root modules run: the hot path of standard mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from ..loop.exact import tensors_in
from .bank import Bank, Held

if TYPE_CHECKING:
    from .watch import LayerWatch

__all__ = ["GRADIENT", "MEASURED", "OUTPUT", "Here", "Muted", "Recomputed"]

OUTPUT, GRADIENT = 0, 1
"""What a slot belongs to: owner ``2 * layer + OUTPUT`` or ``2 * layer + GRADIENT``."""

MEASURED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""Dtypes of which a minimum and a maximum can be taken everywhere."""

_PLAIN = (Tensor, Parameter)

Hook = Callable[[Tensor], None]

_is_recording = torch.is_grad_enabled
_set_recording = torch._C._set_grad_enabled


class _Entry:
    """A leaf module as this thread knows it; ``layer`` is -1 when it is not looked at.

    ``dtype`` and ``device`` are those of its last output, if that could be measured.
    """

    __slots__ = ("bank", "device", "dtype", "hook", "layer", "ref", "tap")

    def __init__(self, layer: int, bank: Bank, ref: weakref.ref[Module]) -> None:
        self.layer = layer
        self.bank = bank
        self.ref = ref
        self.dtype: torch.dtype | None = None
        self.device: torch.device | None = None
        self.hook: Hook | None = None
        self.tap: Tensor | None = None


class Here:
    """Reduces outputs of leaf modules, and the gradients that come back, into banks.

    Args:
        watch: gives numbers to modules, and is told what cannot be measured.
    """

    whole = False
    direct = True  # a range may be taken without asking anybody first

    def __init__(self, watch: LayerWatch) -> None:
        self._root: weakref.ref[Module] | None = None
        self.on = True
        self._watch = watch
        self._entries: dict[int, _Entry] = {}
        self._banks: dict[tuple[torch.dtype, torch.device], Bank] = {}
        self._none = Bank(torch.bool, torch.device("meta"))

    @property
    def root(self) -> Module | None:
        """The root module that runs, or ran last."""
        return None if self._root is None else self._root()

    # ------------------------------------------------------------------ while the model runs
    def enter(self, root: Module) -> None:
        """A root module is about to run."""
        if self._root is None or self._root() is not root:
            self._root = weakref.ref(root)

    def ended(self, module: Module, output: object) -> None:
        """See :class:`..taps.inside.Inside`."""
        entry = self._entries.get(id(module))
        try:
            if (
                entry is None
                or type(output) is not Tensor
                or output.dtype is not entry.dtype
                or output.device != entry.device
                or not self.direct
            ):
                self._end(entry or self._meet(module), output)
                return
            if entry.layer < 0:
                return
            bank = entry.bank
            used = len(bank.owners)
            if used >= len(bank.slots):
                self._end(entry, output)
                return
            recording = _is_recording()
            _set_recording(False)  # torch.no_grad() costs as much as the reduction
            try:
                torch.aminmax(output, out=bank.slots[used])
            finally:
                _set_recording(recording)
            bank.owners.append(2 * entry.layer)
            if output.output_nr or entry.tap is None:
                self._follow(entry, output)
            elif (node := output.grad_fn) is not None:
                node._register_hook_dict(entry.tap)
        except Exception as error:
            self._give_up(module, output, error)

    def _end(self, entry: _Entry, output: object) -> None:
        """:meth:`ended` for whatever a module may return."""
        if entry.layer < 0:
            return
        for _, tensor in tensors_in(output):
            self._reduce(entry, tensor)
            self._follow(entry, tensor)

    def around(
        self,
        call: Callable[..., object],
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """See :class:`..taps.inside.Inside`."""
        return call(module, *args, **kwargs)

    def put(self, bank: Bank, tensor: Tensor, owner: int) -> None:
        """Note the range of a tensor; gradients are off."""
        bank.reduce(tensor, owner)

    def bank_of(self, dtype: torch.dtype, device: torch.device) -> Bank:
        """Return the bank for tensors of a dtype on a device."""
        bank = self._banks.get((dtype, device))
        if bank is None:
            bank = self._banks[dtype, device] = Bank(dtype, device)
        return bank

    def recomputed(self, module: Module, output: object) -> None:
        """A leaf module ran again in a backward pass: only gradients through it are news."""
        entry = self._entries.get(id(module))
        if entry is not None and entry.layer >= 0:
            for _, tensor in tensors_in(output):
                self._follow(entry, tensor)

    def close(self) -> None:
        """Let go of everything; taps in graphs that are still alive do nothing any more."""
        self.on = False
        for entry in self._entries.values():
            if entry.tap is not None:
                entry.tap._backward_hooks = None
        self._entries.clear()
        self._banks.clear()

    # ------------------------------------------------------------------ between steps
    def mark(self) -> None:
        """A backward pass is over."""
        for bank in self._banks.values():
            if bank.owners:
                bank.mark()

    def drop_marked(self) -> None:
        """Gradients were cleared: what led to them is of no interest any more."""
        for bank in self._banks.values():
            if bank.owners:
                bank.drop_marked()

    def clear(self) -> None:
        """Begin a new step."""
        for bank in self._banks.values():
            if bank.owners:
                bank.clear()

    def send(self) -> None:
        """Start copying to the host."""
        for bank in self._banks.values():
            bank.send()

    def receive(self) -> list[Held]:
        """Return what was noted, and begin a new step."""
        found = []
        for bank in self._banks.values():
            held = bank.receive() if bank.owners else None
            if held is not None:
                found.append(held)
        return found

    # ------------------------------------------------------------------ private
    def _reduce(self, entry: _Entry, tensor: Tensor) -> None:
        bank = entry.bank
        if tensor.dtype is not bank.dtype or tensor.device != bank.device:
            bank = self._bank(entry, tensor)
            if bank is self._none:
                return
        recording = _is_recording()
        _set_recording(False)
        try:
            self.put(bank, tensor, 2 * entry.layer)
        finally:
            _set_recording(recording)

    def _follow(self, entry: _Entry, tensor: Tensor) -> None:
        """Tap the gradient of an output at its node: the output itself carries no hook.

        A node takes over the hooks of any tensor that it is given, at a tenth of the cost of
        ``register_hook``; the one of the tap stands for the first output of its node.
        """
        node = tensor.grad_fn
        if node is None or entry.hook is None:
            return
        number = tensor.output_nr
        if not number and entry.tap is not None:
            node._register_hook_dict(entry.tap)
        else:
            node.register_prehook(self._prehook(entry.hook, number))

    def _hook(self, entry: _Entry, bank: Bank) -> Hook:
        owner = 2 * entry.layer + GRADIENT
        dtype, device, owners, direct = bank.dtype, bank.device, bank.owners, self.direct

        def gradient(grad: Tensor) -> None:
            if grad.dtype is not dtype or grad.device != device or not self.on:
                return
            recording = _is_recording()
            _set_recording(False)
            try:
                used = len(owners)
                if direct and used < len(bank.slots):
                    torch.aminmax(grad, out=bank.slots[used])
                    owners.append(owner)
                else:
                    self.put(bank, grad, owner)
            except Exception as error:
                self._watch.unseen(entry.layer, f"gradients raised {type(error).__name__}")
                entry.layer = -1
            finally:
                _set_recording(recording)

        return gradient

    @staticmethod
    def _prehook(hook: Hook, number: int) -> Callable[[Sequence[Tensor | None]], None]:
        """The hook for the output ``number`` of a node."""

        def gradients_of_node(gradients: Sequence[Tensor | None]) -> None:
            grad = gradients[number]
            if grad is not None:
                hook(grad)

        return gradients_of_node

    def _bank(self, entry: _Entry, tensor: Tensor) -> Bank:
        dtype, device = tensor.dtype, tensor.device
        usable = dtype in MEASURED and type(tensor) in _PLAIN and device.type != "meta"
        if not usable:
            if dtype.is_floating_point or dtype.is_complex or tensor.is_quantized:
                name = str(dtype).removeprefix("torch.")
                kind = "" if type(tensor) in _PLAIN else f" of type {type(tensor).__name__}"
                self._watch.unseen(entry.layer, f"outputs in {name}{kind}")
            return self._none
        bank = entry.bank = self.bank_of(dtype, device)
        entry.dtype, entry.device = dtype, device
        entry.hook = self._hook(entry, bank)
        entry.tap = _tap(entry.hook)
        return bank

    def _meet(self, module: Module) -> _Entry:
        root = self.root
        layer = -1 if root is None else self._watch.number(root, module)
        return self._add(module, layer)

    def _add(self, module: Module, layer: int) -> _Entry:
        key, entries = id(module), self._entries
        ref = weakref.ref(module, lambda _: entries.pop(key, None))  # another may get its id
        entry = entries[key] = _Entry(layer, self._none, ref)
        return entry

    def _give_up(self, module: Module, output: object, error: Exception) -> None:
        """Look at this module no longer, unless it only returned something empty."""
        entry = self._entries.get(id(module))
        if any(not tensor.numel() for _, tensor in tensors_in(output)):
            return
        if entry is None:
            self._add(module, -1)
            return
        self._watch.unseen(entry.layer, _what(output, error))
        entry.layer = -1


def _tap(hook: Hook) -> Tensor | None:
    """A tensor that carries a hook, for nodes to take over; ``None`` where torch cannot do that."""
    if not hasattr(torch._C._FunctionBase, "_register_hook_dict"):
        return None
    with torch.inference_mode(False):
        tap = torch.empty(0, device="cpu", requires_grad=True)
    tap._backward_hooks = {0: hook}
    return tap


class Recomputed:
    """Inside of a call that a backward pass makes again (activation checkpointing)."""

    whole = False

    def __init__(self, here: Here) -> None:
        self.ended = here.recomputed
        self.around = here.around


class Muted:
    """Inside of a call under a ``TorchFunctionMode`` of the program, which must not see ours."""

    whole = False

    def __init__(self, here: Here) -> None:
        self._here = here
        self.around = here.around

    def ended(self, module: Module, output: object) -> None:
        """See :class:`..taps.inside.Inside`."""
        with torch._C.DisableTorchFunction():
            self._here.ended(module, output)


def _what(output: object, error: Exception) -> str:
    for _, tensor in tensors_in(output):
        if tensor.layout is not torch.strided:
            return f"outputs with layout {str(tensor.layout).removeprefix('torch.')}"
    return f"outputs raised {type(error).__name__}"

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
_aminmax = torch.aminmax
_set_recording = torch._C._set_grad_enabled


class _Entry:
    """A leaf module as this thread knows it.

    Attributes:
        layer: its number; -1 when it is not looked at.
        owner: of the slots of its outputs.
        bank: for the dtype and device of its last output; one without slots before that.
        ref: the module.
        hook: measures a gradient.
        tap: carries the hook to autograd nodes.
    """

    __slots__ = ("bank", "hook", "layer", "owner", "ref", "tap")

    def __init__(self, layer: int, bank: Bank, ref: weakref.ref[Module]) -> None:
        self.layer = layer
        self.owner = 2 * layer + OUTPUT
        self.bank = bank
        self.ref = ref
        self.hook: Hook | None = None
        self.tap: Tensor | None = None

    def give_up(self, nowhere: Bank) -> None:
        """Look at it no longer."""
        self.layer, self.bank = -1, nowhere


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
        if entry is None or type(output) is not Tensor or not self.direct:
            self._end(entry, module, output)
            return
        bank = entry.bank
        recording = _is_recording()
        if recording:
            _set_recording(False)  # torch.no_grad() costs as much as the reduction
        try:
            _aminmax(output, out=bank.slots[len(bank.owners)])
        except Exception:  # not of the dtype or on the device of the last time, or no slot is left
            measured = False
        else:
            measured = True
            bank.owners.append(entry.owner)
        if recording:
            _set_recording(True)
        if not measured:
            self._end(entry, module, output)
        elif (node := output.grad_fn) is not None:
            if output.output_nr or entry.tap is None:
                self._follow(entry, output)
            else:
                node._register_hook_dict(entry.tap)

    def _end(self, entry: _Entry | None, module: Module, output: object) -> None:
        """:meth:`ended` for whatever a module may return."""
        try:
            known = entry or self._meet(module)
            if known.layer >= 0:
                for _, tensor in tensors_in(output):
                    self._reduce(known, tensor)
                    self._follow(known, tensor)
        except Exception as error:
            self._give_up(module, output, error)

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
        owners, direct = bank.owners, self.direct

        def gradient(grad: Tensor) -> None:
            if not self.on:
                return
            recording = _is_recording()
            if recording:
                _set_recording(False)
            try:
                if not direct:
                    self._measure(entry, bank, grad)
                else:
                    _aminmax(grad, out=bank.slots[len(owners)])
                    owners.append(owner)
            except Exception:
                self._measure(entry, bank, grad)
            finally:
                if recording:
                    _set_recording(True)

        return gradient

    def _measure(self, entry: _Entry, bank: Bank, grad: Tensor) -> None:
        """Note the range of a gradient that may be of any kind."""
        if grad.dtype is not bank.dtype or grad.device != bank.device or entry.layer < 0:
            return
        try:
            self.put(bank, grad, 2 * entry.layer + GRADIENT)
        except Exception as error:
            self._watch.unseen(entry.layer, f"gradients raised {type(error).__name__}")
            entry.give_up(self._none)

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
        entry.give_up(self._none)


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

"""How large the signal is at each layer, forwards and backwards, at one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from ..host_reads import on_host

__all__ = ["Rung", "SignalLadder"]

ForwardHook = Callable[[Module, object, object], None]
GradHook = Callable[[Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One layer, in the order of the calls.

    Attributes:
        name: path of the module.
        forward: root mean square of its output.
        backward: mean length of the gradient at its output, per sample; NaN when none came.
        likeness: mean cosine between the outputs of different samples.
        dead: share of the output that is exactly zero.
    """

    name: str
    forward: float
    backward: float
    likeness: float
    dead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What an output shows, before it is read from the device.

    Attributes:
        shape: samples and entries of each.
        size: length of the whole output.
        aligned: squared length of the sum of the samples' unit vectors.
        nonzero: entries that are not zero.
    """

    shape: tuple[int, int]
    size: Tensor
    aligned: Tensor
    nonzero: Tensor


class SignalLadder:
    """Taps the layers with a matrix of weights while one step runs."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self._handles: list[RemovableHandle] = []
        self._forward: dict[str, _Measured] = {}
        self._backward: dict[str, Tensor] = {}

    def begin(self) -> None:
        """Tap every layer."""
        self._forward, self._backward = {}, {}
        for name, module in self._model.named_modules():
            weights = module._parameters.values()
            if any(weight is not None and weight.dim() > 1 for weight in weights):
                self._handles.append(module.register_forward_hook(self._hook(name or "model")))

    def end(self) -> None:
        """Take the taps out of the layers; gradients still arrive."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def rungs(self) -> list[Rung]:
        """Return what the step showed; reads from the device once."""
        names = list(self._forward)
        if not names:
            return []
        missing = torch.full((), torch.nan)
        measured = [self._forward[name] for name in names]
        scalars = [part for one in measured for part in (one.size, one.aligned, one.nonzero)]
        found = on_host([*scalars, *(self._backward.get(name, missing) for name in names)])
        grads = found[len(scalars) :]
        return [
            _rung(name, measured[n].shape, found[3 * n : 3 * n + 3], grads[n])
            for n, name in enumerate(names)
        ]

    # ------------------------------------------------------------------ private
    def _hook(self, name: str) -> ForwardHook:
        def hook(module: Module, args: object, output: object) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if name in self._forward or not isinstance(first, Tensor):
                return
            with torch._C.DisableTorchFunction():
                # even to ask for an attribute is a call that another mode would look at
                if first.grad_fn is None or first.dim() < 2 or not first.is_floating_point():
                    return
                self._forward[name] = _measure(first.detach())
                first.register_hook(self._grad_hook(name))  # type: ignore[no-untyped-call]

        return hook

    def _grad_hook(self, name: str) -> GradHook:
        def hook(grad: Tensor) -> None:
            with torch._C.DisableTorchFunction():
                self._backward[name] = _lengths(grad.detach().flatten(1)).mean()

        return hook


def _measure(output: Tensor) -> _Measured:
    rows = output.flatten(1)
    lengths = _lengths(rows)
    total = torch.mv(rows.T.to(lengths.dtype), lengths.clamp(min=1e-30).reciprocal_())
    return _Measured(
        shape=(rows.shape[0], rows.shape[1]),
        size=torch.linalg.vector_norm(lengths),
        aligned=torch.dot(total, total),
        nonzero=torch.count_nonzero(rows),
    )


def _rung(name: str, shape: tuple[int, int], values: Sequence[float], backward: float) -> Rung:
    size, aligned, nonzero = values
    count, entries = max(2, shape[0]), max(1, shape[0] * shape[1])
    return Rung(
        name=name,
        forward=size / entries**0.5,
        backward=backward,
        likeness=(aligned - count) / (count * (count - 1)),
        dead=1 - nonzero / entries,
    )


def _lengths(rows: Tensor) -> Tensor:
    narrow = rows.dtype in (torch.float16, torch.bfloat16)
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32 if narrow else None)
    return lengths

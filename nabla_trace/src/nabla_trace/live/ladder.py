"""How large the signal is at each layer, forwards and backwards, at one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from .gradient_tap import on_host

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


class SignalLadder:
    """Taps the layers with a matrix of weights while one step runs."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self._handles: list[RemovableHandle] = []
        self._forward: dict[str, Tensor] = {}
        self._backward: dict[str, Tensor] = {}

    def begin(self) -> None:
        """Tap every layer."""
        self._forward, self._backward = {}, {}
        for name, module in self._model.named_modules():
            weights = list(module.parameters(recurse=False))
            if any(weight.dim() > 1 for weight in weights):
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
        values = [part for name in names for part in self._forward[name].unbind()]
        found = on_host([*values, *(self._backward.get(name, missing) for name in names)])
        rows = [found[3 * index : 3 * index + 3] for index in range(len(names))]
        grads = found[3 * len(names) :]
        return [
            Rung(name=name, forward=row[0], backward=grad, likeness=row[1], dead=row[2])
            for name, row, grad in zip(names, rows, grads, strict=True)
        ]

    # ------------------------------------------------------------------ private
    def _hook(self, name: str) -> ForwardHook:
        def hook(module: Module, args: object, output: object) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if name in self._forward or not isinstance(first, Tensor) or first.grad_fn is None:
                return
            if not first.is_floating_point() or first.dim() < 2:
                return
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._forward[name] = _measure(first)
                first.register_hook(self._grad_hook(name))  # type: ignore[no-untyped-call]

        return hook

    def _grad_hook(self, name: str) -> GradHook:
        def hook(grad: Tensor) -> None:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._backward[name] = _lengths(grad.flatten(1)).mean()

        return hook


def _measure(output: Tensor) -> Tensor:
    """Return root mean square, mean cosine of different samples, share of zeros: ``[3]``."""
    rows = output.flatten(1)
    count = max(2, len(rows))
    lengths = _lengths(rows)
    total = torch.mv(rows.T.to(lengths.dtype), 1 / lengths.clamp(min=1e-30))  # of unit vectors
    alike = (torch.dot(total, total) - count) / (count * (count - 1))
    scale = torch.linalg.vector_norm(lengths) / rows.numel() ** 0.5
    dead = 1 - torch.count_nonzero(rows) / rows.numel()
    return torch.stack([scale, alike, dead.to(scale.dtype)])


def _lengths(rows: Tensor) -> Tensor:
    narrow = rows.dtype in (torch.float16, torch.bfloat16)
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32 if narrow else None)
    return lengths

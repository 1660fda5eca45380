"""How large the signal is at each layer, forwards and backwards, at one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

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
        rows = torch.stack([self._forward[name] for name in names]).tolist()
        missing = torch.full((), torch.nan)
        grads = torch.stack(
            [self._backward.get(name, missing).float().cpu() for name in names]
        ).tolist()
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
            self._forward[name] = _measure(first.detach())
            first.register_hook(self._grad_hook(name))  # type: ignore[no-untyped-call]

        return hook

    def _grad_hook(self, name: str) -> GradHook:
        def hook(grad: Tensor) -> None:
            self._backward[name] = grad.detach().float().flatten(1).norm(dim=1).mean()

        return hook


def _measure(output: Tensor) -> Tensor:
    """Return root mean square, mean cosine of different samples, share of zeros: ``[3]``."""
    rows = output.float().flatten(1)
    count = max(2, len(rows))
    lengths = rows.norm(dim=1)
    total = (1 / lengths.clamp(min=1e-30)) @ rows  # sum of unit vectors
    alike = (total.square().sum() - count) / (count * (count - 1))
    scale = (lengths.square().sum() / rows.numel()).sqrt()
    dead = 1 - torch.count_nonzero(rows) / rows.numel()
    return torch.stack([scale, alike, dead.to(scale.dtype)]).cpu()

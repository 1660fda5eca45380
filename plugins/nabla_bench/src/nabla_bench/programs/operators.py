"""Operators with a wrong derivative, or with a side effect (CHK)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from nabla_bench.toolbox import Toolbox, tool
from nabla_core.issue import Issue

__all__ = ["factor_forgotten", "input_overwritten", "strides_ignored"]

Issues = tuple[Issue, ...]


class Cube(torch.autograd.Function):
    """``x ** 3`` with its derivative written by hand."""

    factor = 3.0

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        """Return the cube."""
        ctx.save_for_backward(x)
        return x**3

    @classmethod
    def backward(cls, ctx: FunctionCtx, *given: Tensor) -> Tensor:
        """Return the gradient of the input."""
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return given[0] * cls.factor * x**2  # type: ignore[no-any-return]


class WrongCube(Cube):
    """The same with a factor that is one too small."""

    factor = 2.0


def factor_forgotten(box: Toolbox, fault: bool) -> Issues:
    """A constant of the derivative is wrong; healthy: right."""
    chosen = WrongCube.apply if fault else Cube.apply
    return tool("check.operator")(candidate=chosen, inputs=[_numbers(box)], seed=1).issues


class Doubled(torch.autograd.Function):
    """``2 * x``, whose backward reads the cotangent's memory as if it lay in order."""

    careful = True

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        """Return twice the input."""
        return 2.0 * x

    @classmethod
    def backward(cls, ctx: FunctionCtx, *given: Tensor) -> Tensor:
        """Return the gradient of the input."""
        (grad,) = given
        if cls.careful:
            return 2.0 * grad
        span = sum((size - 1) * step for size, step in zip(grad.shape, grad.stride(), strict=True))
        flat = grad.as_strided((span + 1,), (1,))
        return 2.0 * flat.repeat(grad.numel() // flat.numel() + 1)[: grad.numel()].view(grad.shape)


class CarelessDoubled(Doubled):
    """The same without care for the strides."""

    careful = False


def strides_ignored(box: Toolbox, fault: bool) -> Issues:
    """The gradient is wrong for a transposed cotangent only; healthy: right for any."""
    chosen = CarelessDoubled.apply if fault else Doubled.apply
    return tool("check.operator")(candidate=chosen, inputs=[_numbers(box)], seed=1).issues


def input_overwritten(box: Toolbox, fault: bool) -> Issues:
    """An operator that works in the memory of its argument; healthy: in a copy."""

    def scaled(x: Tensor, factor: Tensor) -> Tensor:
        work = factor if fault else factor.clone()
        work.mul_(2.0)
        return x * work

    factor = 1.0 + torch.rand(4, dtype=torch.float64)
    return tool("check.operator")(candidate=scaled, inputs=[_numbers(box), factor], seed=1).issues


def _numbers(box: Toolbox) -> Tensor:
    return box.x[:6, :4].double().requires_grad_()

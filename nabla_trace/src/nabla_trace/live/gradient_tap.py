"""What the gradient of a step is as backward gives it: before clipping, unscaling and stepping."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from ..ghost.tolerance import square_of
from ..host_reads import on_host

__all__ = ["GradientTap", "inner_product"]

_NARROW = (torch.float16, torch.bfloat16)


class GradientTap:
    """Hooks on parameters during the backward passes of one step.

    A gradient counts when it has been accumulated: one that somebody asks for with
    ``torch.autograd.grad`` on the way is none of the step.

    Args:
        parameters: name → parameter.

    Attributes:
        disturbed: whether hooks of others may change a gradient before it is seen here.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.disturbed = False
        self._parameters = parameters
        self._direction: Mapping[str, Tensor] = {}
        self._handles: list[RemovableHandle] = []
        self._latest: dict[str, tuple[Tensor, Tensor | None]] = {}
        self._squares: dict[str, list[Tensor]] = {}
        self._products: dict[str, Tensor] = {}

    def start(self, direction: Mapping[str, Tensor]) -> None:
        """Measure from now on.

        Args:
            direction: name → vector of which the inner product with the gradient is wanted.
        """
        self.stop()
        hooks = (getattr(p, "_backward_hooks", None) for p in self._parameters.values())
        self.disturbed = any(hooks)
        self._direction, self._latest, self._squares, self._products = direction, {}, {}, {}
        for name, parameter in self._parameters.items():
            arrives, accumulated = self._hooks(name)
            later = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                accumulated
            )
            self._handles += [parameter.register_hook(arrives), later]  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Take the hooks out; what was measured stays."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._latest, self._direction = [], {}, {}

    def squares(self) -> dict[str, float]:
        """Return the squared norm of each gradient; of several passes, their sum."""
        names = [name for name, passes in self._squares.items() for _ in passes]
        measured = [square for passes in self._squares.values() for square in passes]
        found: dict[str, float] = {}
        for name, square in zip(names, on_host(measured), strict=True):
            found[name] = found.get(name, 0.0) + square
        return found

    @property
    def passes(self) -> int:
        """In how many backward passes gradients were accumulated."""
        return max(map(len, self._squares.values()), default=0)

    def slope(self) -> float:
        """Return the inner product of the first pass's gradient and the direction; NaN when no
        gradient came."""
        return sum(on_host(list(self._products.values()))) if self._products else math.nan

    # ------------------------------------------------------------------ private
    def _hooks(self, name: str) -> tuple[Callable[[Tensor], None], Callable[[Tensor], None]]:
        def arrives(grad: Tensor) -> None:
            with torch._C.DisableTorchFunction():
                direction, plain = self._direction.get(name), grad.detach()
                product = None if direction is None else inner_product(plain, direction)
                self._latest[name] = square_of(plain), product

        def accumulated(parameter: Tensor) -> None:
            square, product = self._latest.pop(name, (None, None))
            if square is None:
                return
            self._squares.setdefault(name, []).append(square)
            if product is not None:
                self._products.setdefault(name, product)

        return arrives, accumulated


def inner_product(grad: Tensor, direction: Tensor) -> Tensor:
    """Return the inner product of a gradient, sparse or not, and a vector; at least float32."""
    if grad.is_sparse:
        grad = grad.coalesce()
        direction = direction[tuple(grad.indices())]
        grad = grad.values()
    if grad.dtype is not direction.dtype or grad.dtype in _NARROW:
        wide = torch.promote_types(grad.dtype, torch.float32)
        grad, direction = grad.to(wide), direction.to(wide)
    return torch.dot(grad.reshape(-1), direction.reshape(-1))

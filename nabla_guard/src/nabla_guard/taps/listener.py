"""What a listener of the live instrument is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

__all__ = ["Listener"]


class Listener(Protocol):
    """Receives what happens in torch, in the thread in which it happens."""

    def forward_ended(
        self, module: Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """A root module returned: one that was called by the user's code, not by another module."""

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """An accumulating backward pass is about to run from ``roots``."""

    def backward_ended(self, roots: Sequence[Tensor]) -> None:
        """The backward pass is over and gradients are written."""

    def gradients_cleared(self, owner: Optimizer | Module) -> None:
        """``zero_grad`` of ``owner`` ran."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was made, or a group was added to it."""

    def step_started(self, optimizer: Optimizer, closure: bool) -> None:
        """The outermost ``step`` is about to run; with a closure, backward comes inside it."""

    def step_ended(self, optimizer: Optimizer, closure: bool) -> None:
        """The outermost ``step`` is over."""

    def loss_scaled(self, loss: Tensor, scaled: Tensor) -> None:
        """A gradient scaler multiplied ``loss`` by its scale."""

    def state_loaded(self, module: Module, keys: frozenset[str]) -> None:
        """``load_state_dict`` put the entries ``keys`` into ``module``."""

    def failed(self, error: Exception) -> None:
        """The listener raised ``error`` and was detached."""

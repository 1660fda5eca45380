"""Lets torch see the steps of a Keras optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import keras
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["AsTorchOptimizer"]

Apply = Callable[..., object]


class AsTorchOptimizer(Optimizer):
    """The optimizer of a Keras model, as one of torch whose step applies the gradients.

    Keras reads the gradients that ``backward`` wrote and hands them to ``apply`` of its optimizer;
    during the training that call goes through :meth:`step`, so that whoever listens to the steps
    of torch's optimizers hears of it. Nothing else is changed.

    Args:
        model: a compiled Keras model with its weights built.

    Attributes:
        steps: how often gradients were applied.
    """

    def __init__(self, model: keras.Model) -> None:
        weights: list[Tensor] = [variable.value for variable in model.trainable_variables]
        self._keras = model.optimizer
        super().__init__(weights, {"lr": _rate(self._keras)})
        self._apply: Apply = self._keras.apply
        self._given: tuple[object, ...] = ()
        self.steps = 0
        self._keras.apply = self._stepping

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Apply the gradients that Keras has read."""
        self._apply(*self._given)

    def release(self) -> None:
        """Give the Keras optimizer its own method back."""
        if self._keras.__dict__.get("apply") is not None:
            del self._keras.apply

    def _stepping(self, grads: Iterable[object], *rest: object) -> None:
        for group in self.param_groups:
            group["lr"] = _rate(self._keras)
        self._given = (grads, *rest)
        try:
            self.step()
        finally:
            self._given = ()
        self.steps += 1


def _rate(optimizer: keras.optimizers.Optimizer) -> float:
    return float(optimizer.learning_rate)

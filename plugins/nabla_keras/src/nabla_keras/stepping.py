"""Lets torch see the steps of a Keras optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import keras
import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["AsTorchOptimizer"]

Apply = Callable[..., object]


class AsTorchOptimizer(Optimizer):
    """The optimizer of a Keras model, as one of torch whose step applies the gradients.

    Keras reads the gradients that ``backward`` wrote and hands them to ``apply`` of its optimizer;
    during the training that call goes through :meth:`step`, so that whoever listens to the steps
    of torch's optimizers hears of it. Of calls that only accumulate nobody hears, unless a gradient
    is not finite: what made it is known as long as its batch is. The call that changes the weights
    shows the mean gradient of them all as ``grad``, until it returns. Nothing else is changed.

    Args:
        model: a compiled Keras model with its weights built.

    Attributes:
        steps: how many steps were heard of.
    """

    def __init__(self, model: keras.Model) -> None:
        weights: list[Tensor] = [variable.value for variable in model.trainable_variables]
        self._keras = model.optimizer
        super().__init__(weights, {"lr": _rate(self._keras)})
        self._apply: Apply = self._keras.apply
        self._given: tuple[object, ...] = ()
        self.steps = 0
        self._keras.apply = self._stepping

    @classmethod
    def of(cls, model: keras.Model) -> AsTorchOptimizer:
        """Return one whose class is named as that of Keras: reports show the name."""
        named: type[AsTorchOptimizer] = type(f"Keras{type(model.optimizer).__name__}", (cls,), {})
        return named(model)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Apply the gradients that Keras has read."""
        self._apply(*self._given)

    def release(self) -> None:
        """Give the Keras optimizer its own method back."""
        if self._keras.__dict__.get("apply") is not None:
            del self._keras.apply

    def _stepping(self, grads: Sequence[Tensor | None], *rest: object) -> None:
        waits = _waits_for(self._keras)
        only_adds = waits and (int(self._keras._iterations) + 1) % waits
        if only_adds and _all_finite(grads):
            self._apply(grads, *rest)
            return
        for group in self.param_groups:
            group["lr"] = _rate(self._keras)
        self._given = (grads, *rest)
        try:
            with _shown(self._keras, 0 if only_adds else waits):
                self.step()
        finally:
            self._given = ()
        self.steps += 1


def _waits_for(optimizer: keras.optimizers.Optimizer) -> int:
    """How many calls of ``apply`` make one step; 0 if each is one."""
    return optimizer.gradient_accumulation_steps or 0


def _all_finite(grads: Sequence[Tensor | None]) -> bool:
    norms = [torch.linalg.vector_norm(grad) for grad in grads if grad is not None]
    return not norms or bool(torch.isfinite(torch.stack(norms)).all())


@contextmanager
def _shown(optimizer: keras.optimizers.Optimizer, passes: int) -> Iterator[None]:
    """Let ``grad`` be the mean over the passes that the optimizer has added up."""
    pairs = _with_sums(optimizer) if passes and optimizer.built else []
    last = [weight.grad for weight, _ in pairs]
    for weight, added in pairs:
        if weight.grad is not None:
            weight.grad = (weight.grad + added) / passes
    try:
        yield
    finally:
        for (weight, _), grad in zip(pairs, last, strict=True):
            weight.grad = grad


def _with_sums(optimizer: keras.optimizers.Optimizer) -> list[tuple[Tensor, Tensor]]:
    """The weights with what was added up for each."""
    sums = getattr(optimizer, "_accumulated_gradients", ())
    return [
        (variable.value, added.value)
        for variable, added in zip(optimizer._trainable_variables, sums, strict=True)
        if added is not None
    ]


def _rate(optimizer: keras.optimizers.Optimizer) -> float:
    return float(optimizer.learning_rate)

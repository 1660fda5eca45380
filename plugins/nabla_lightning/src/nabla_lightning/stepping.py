"""Lets torch's optimizers step without a closure where Lightning gives them one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import MethodType

import torch
from torch.optim import LBFGS, Optimizer

__all__ = ["ClosuresFirst"]

Step = Callable[..., object]
Closure = Callable[[], object]


class ClosuresFirst:
    """Runs closures right before the step, and no longer as its first act, until released.

    Lightning hands forward and backward pass to ``optimizer.step`` as a closure. What the optimizer
    is given then exists only inside of its step, where nobody can look at it before the parameters
    change. The optimizers of torch call a closure once, before anything else, so calling it in
    front of them gives the same numbers. Left alone are LBFGS, which calls it several times,
    optimizers from elsewhere, and those with pre-hooks of the user, which would run later.

    Args:
        optimizers: those of the training.
    """

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self._steps = [_Step(found) for found in optimizers if _calls_closure_first(found)]

    def release(self) -> None:
        """Give the optimizers their own step back."""
        for step in self._steps:
            step.release()
        self._steps = []


class _Step:
    """What stands in for the step of one optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        own: Step = optimizer.step
        self._optimizer = optimizer
        self._before = vars(optimizer).get("step")  # a scheduler counts steps in this way, too
        self._is_on = True

        @functools.wraps(own)
        def step(_: Optimizer, closure: Closure | None = None, **given: object) -> object:
            if closure is None or not self._is_on:
                return own(**given) if closure is None else own(closure, **given)
            with torch.enable_grad():
                result = closure()
            own(**given)
            return result

        self._put: Step = MethodType(step, optimizer)  # schedulers ask for its __func__
        optimizer.step = self._put  # type: ignore[method-assign]

    def release(self) -> None:
        self._is_on = False
        if vars(self._optimizer).get("step") is not self._put:
            return  # somebody has wrapped it since: it passes on from now on
        if self._before is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._before  # type: ignore[method-assign]


def _calls_closure_first(optimizer: Optimizer) -> bool:
    kind = type(optimizer)
    return (
        kind.__module__.startswith("torch.optim.")
        and not issubclass(kind, LBFGS)
        and not optimizer.defaults.get("differentiable")
        and not getattr(optimizer, "_optimizer_step_pre_hooks", None)
    )

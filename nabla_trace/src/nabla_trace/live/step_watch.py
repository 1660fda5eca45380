"""Takes losses before and after steps, on their own batch and on the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module

from ..ghost.rng import RngState, kept_rng, restore_rng, rng_state
from ..ghost.tolerance import square_of
from ..step_probes import NextBatchProbe, OwnBatchProbe
from .tape import LossTape

__all__ = ["StepWatch"]

_OWN_LOSSES = 12
"""Steps after which the loss of their own batch is taken again; later ones give their slope only,
which costs no forward pass."""


class StepWatch:
    """The probes of one model's steps.

    Args:
        model: the model.
        parameters: those that the optimizer moves.

    Attributes:
        own: probes on the steps' own batches.
        following: probes on the batches after them.
    """

    def __init__(self, model: Module, parameters: Mapping[str, Tensor]) -> None:
        self.own: list[OwnBatchProbe] = []
        self.following: list[NextBatchProbe] = []
        self._model, self._parameters = model, dict(parameters)
        self._given: tuple[tuple[object, ...], dict[str, object]] = ((), {})
        self._rng: RngState | None = None
        self._old: dict[str, Tensor] = {}
        self._pending: int | None = None
        self._loss_square = 0.0
        self._autocast: tuple[str, torch.dtype] | None = None

    @property
    def waits(self) -> bool:
        """Whether a step waits for the next batch."""
        return self._pending is not None

    def called(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """The model is about to be called."""
        self._given, self._rng = (args, dict(kwargs)), rng_state()
        self._autocast = next(
            (
                (kind, torch.get_autocast_dtype(kind))
                for kind in ("cuda", "cpu")
                if torch.is_autocast_enabled(kind)
            ),
            None,
        )

    def backward_starts(self, tape: LossTape, loss: Tensor) -> None:
        """The loss of a batch is known: judge the step before on it."""
        step, self._pending = self._pending, None
        if step is None or not self._old or not tape.usable:
            self._old = {}
            return
        half = {n: (old + self._parameters[n].detach()) / 2 for n, old in self._old.items()}
        probe = NextBatchProbe(
            step=step,
            before=self._loss_with(self._old, tape),
            half=self._loss_with(half, tape),
            after=float(loss.detach()),
        )
        self.following.append(probe)
        self._old = {}

    def step_starts(self) -> None:
        """The optimizer is about to move the parameters."""
        self._old = {name: p.detach().clone() for name, p in self._parameters.items()}

    def step_ends(self, step: int, tape: LossTape | None, gradient_square: float) -> None:
        """The optimizer has moved the parameters.

        Args:
            step: which step.
            tape: the way to the loss of this batch, if it was recorded from a single backward pass.
            gradient_square: squared norm of the gradient as backward left it; 0 if not known.
        """
        self._pending = step
        if tape is None or not tape.usable or tape.loss is None:
            return
        slope = self._slope(gradient_square)
        if not math.isfinite(slope):
            return
        before, after = float(tape.loss), math.nan
        if len(self.own) < _OWN_LOSSES:
            now = {name: parameter.detach() for name, parameter in self._parameters.items()}
            after = self._loss_with(now, tape)
            after = math.inf if math.isnan(after) else after
        self.own.append(OwnBatchProbe(step=step, before=before, after=after, slope=slope))

    def forget(self) -> None:
        """Let go of every tensor."""
        self._old, self._given, self._pending = {}, ((), {}), None

    # ------------------------------------------------------------------ private
    def _slope(self, gradient_square: float) -> float:
        """Return the inner product of step and gradient, of the gradient as it was before clipping
        or unscaling."""
        product = square = 0.0
        for name, old in self._old.items():
            parameter = self._parameters[name]
            if parameter.grad is None or parameter.grad.is_sparse:
                continue
            grad = parameter.grad.detach()
            wide = torch.float32 if grad.dtype in (torch.float16, torch.bfloat16) else grad.dtype
            step = (parameter.detach() - old).to(wide).flatten()
            product += float(torch.dot(grad.to(wide).flatten(), step))
            square += square_of(grad)
        if not square:
            return math.nan
        scale = math.sqrt(gradient_square / square) if gradient_square else 1.0
        return product * scale

    def _loss_with(self, values: Mapping[str, Tensor], tape: LossTape) -> float:
        """Run the kept call with other values, the same random numbers, and no trace of it."""
        args, kwargs = self._given
        buffers = {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        with torch.no_grad(), kept_rng():
            if self._rng is not None:
                restore_rng(self._rng)
            if self._autocast is None:
                output = functional_call(self._model, {**values, **buffers}, args, kwargs)
                return tape.replay(output)
            with torch.autocast(self._autocast[0], dtype=self._autocast[1]):
                output = functional_call(self._model, {**values, **buffers}, args, kwargs)
                return tape.replay(output)

"""Takes losses before and after steps, on their own batch and on the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module

from ..ghost.rng import RngState, kept_rng, restore_rng, rng_state
from ..host_reads import on_host
from ..step_probes import NextBatchProbe, OwnBatchProbe
from ..untouched import written_by_forward
from .gradient_tap import GradientTap, inner_product
from .tape import LossTape

__all__ = ["StepWatch"]

_OWN_LOSSES = 8
"""Steps after which the loss of their own batch is taken again; later ones give their slope only,
which costs no forward pass."""

_ROUNDINGS = 8
"""Roundings by which two losses of the same model may differ."""


class StepWatch:
    """The probes of one model's steps.

    Args:
        model: the model.
        parameters: those that the optimizer moves.
        tap: measures gradients while backward runs.

    Attributes:
        own: probes on the steps' own batches.
        following: probes on the batches after them.
    """

    def __init__(self, model: Module, parameters: Mapping[str, Tensor], tap: GradientTap) -> None:
        self.own: list[OwnBatchProbe] = []
        self.following: list[NextBatchProbe] = []
        self._model, self._parameters, self._tap = model, dict(parameters), tap
        self._given: tuple[tuple[object, ...], dict[str, object]] = ((), {})
        first = {id(parameter): name for name, parameter in parameters.items()}
        self._places = [
            (place, first[id(parameter)])
            for place, parameter in model.named_parameters(remove_duplicate=False)
            if id(parameter) in first
        ]
        written = written_by_forward(list(model.named_modules()))
        self._written = frozenset([id(weight) for weight in written])
        self._rng: RngState | None = None
        self._back: dict[str, Tensor] = {}
        self._pending: int | None = None
        self._judged: tuple[int, float, float, float] | None = None
        self._resolution = 0.0
        self._autocast: tuple[str, torch.dtype] | None = None

    @property
    def waits(self) -> bool:
        """Whether a step waits for the next batch."""
        return self._pending is not None

    @property
    def way_back(self) -> Mapping[str, Tensor]:
        """The latest step that waits, turned round: name → old parameter minus new one."""
        return self._back

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
        """The loss of a batch is known: take it with the parameters of before the step.

        The slope at the end of the step comes with the user's own backward pass. Where hooks of
        others may change the gradient, the loss half way is taken instead.
        """
        step, self._pending = self._pending, None
        if step is None or not self._back or not tape.usable:
            self._back = {}
            return
        before, half = self._loss_at(1.0, tape), math.nan
        if self._tap.disturbed:
            half = self._loss_at(0.5, tape)
        after = float(loss.detach())
        self._judged = step, before, half, after
        self._resolution = _ROUNDINGS * float(torch.finfo(loss.dtype).eps) * abs(after)
        self._back = {}

    def backward_ended(self) -> None:
        """The gradients of the first backward pass are there."""
        if self._judged is None:
            return
        (step, before, half, after), self._judged = self._judged, None
        resolution = self._resolution
        if math.isnan(half):
            slope = -self._tap.slope()
            if math.isnan(slope) and math.isfinite(after):
                return  # no gradient reached the parameters
            probe = NextBatchProbe.from_slope(
                step=step, before=before, after=after, slope_after=slope, resolution=resolution
            )
        else:
            probe = NextBatchProbe(
                step=step, before=before, half=half, after=after, resolution=resolution
            )
        self.following.append(probe)

    def step_starts(self) -> None:
        """The optimizer is about to move the parameters; a step that still waits is given up."""
        self._pending, self._judged = None, None
        self._back = {name: p.detach().clone() for name, p in self._parameters.items()}

    def step_ends(self, step: int, tape: LossTape | None, gradient_square: float) -> None:
        """The optimizer has moved the parameters.

        Args:
            step: which step.
            tape: the way to the loss of this batch, if it was recorded from a single backward pass.
            gradient_square: squared norm of the gradient as backward left it; 0 if not known.
        """
        self._pending = step
        torch._foreach_sub_(
            list(self._back.values()), [self._parameters[name].detach() for name in self._back]
        )
        if tape is None or not tape.usable or tape.loss is None:
            return
        slope = self._slope(gradient_square)
        if not math.isfinite(slope):
            return
        before, after = float(tape.loss), math.nan
        if len(self.own) < _OWN_LOSSES:
            after = self._loss_at(0.0, tape)
            after = math.inf if math.isnan(after) else after
        self.own.append(OwnBatchProbe(step=step, before=before, after=after, slope=slope))

    def forget(self) -> None:
        """Let go of every tensor."""
        self._back, self._given, self._pending, self._judged = {}, ((), {}), None, None

    # ------------------------------------------------------------------ private
    def _slope(self, gradient_square: float) -> float:
        """Return the inner product of step and gradient, of the gradient as it was before clipping
        or unscaling."""
        known = {
            name: parameter.grad.detach()
            for name, parameter in self._parameters.items()
            if parameter.grad is not None and name in self._back
        }
        products = on_host([inner_product(grad, self._back[name]) for name, grad in known.items()])
        dense = [grad.coalesce().values() if grad.is_sparse else grad for grad in known.values()]
        square = sum(norm**2 for norm in on_host(list(torch._foreach_norm(dense)))) if dense else 0
        if not square:
            return math.nan
        return -sum(products) * (math.sqrt(gradient_square / square) if gradient_square else 1.0)

    def _loss_at(self, share: float, tape: LossTape) -> float:
        """Run the kept call with a share of the step undone, the same random numbers, and no trace
        of it."""
        now = {name: parameter.detach() for name, parameter in self._parameters.items()}
        if share == 1.0:
            return self._loss_before(list(now.values()), tape)
        if share:
            now = {n: torch.add(p, self._back[n], alpha=share) for n, p in now.items()}
        return self._replayed(now, tape)

    def _loss_before(self, now: list[Tensor], tape: LossTape) -> float:
        """Run the kept call with the whole step undone, without a third copy of the parameters."""
        back = list(self._back.values())
        torch._foreach_add_(back, now)
        try:
            return self._replayed(self._back, tape)
        finally:
            torch._foreach_sub_(back, now)

    def _replayed(self, parameters: Mapping[str, Tensor], tape: LossTape) -> float:
        args, kwargs = self._given
        chosen = {place: parameters[name] for place, name in self._places}
        every = self._model.named_buffers(remove_duplicate=False)
        copies: dict[int, Tensor] = {}  # what is one buffer stays one
        for place, buffer in every:
            chosen[place] = copies.setdefault(id(buffer), buffer.clone())
        for place, name in self._places:
            if id(self._parameters[name]) in self._written:
                chosen[place] = parameters[name].clone()
        with torch.no_grad(), kept_rng():
            if self._rng is not None:
                restore_rng(self._rng)
            with ExitStack() as stack:
                if self._autocast is not None:
                    kind, dtype = self._autocast
                    stack.enter_context(torch.autocast(kind, dtype=dtype))
                output = functional_call(self._model, chosen, args, kwargs, tie_weights=False)
                return tape.replay(output)

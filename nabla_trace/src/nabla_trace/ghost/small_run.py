"""A run with two samples of the batch, from which the structure of the big one is learnt.

Only the second sample gets a gradient. That makes three things visible at once: along which axis
the samples lie, whether the gradient of one sample reaches the rows of another, and whether the
rules give what autograd gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..batches import Batch, LossFunction, outputs_in
from ..untouched import batch_statistics_frozen
from .bank import Bank, BankOptions
from .call import Call
from .contributions import contributions
from .followed_inputs import followed_inputs, others_feel
from .forward_pass import Subject, module_units
from .function_watch import FunctionWatch
from .loops import per_sample_losses
from .receivers import SEEDED, Recorder
from .squares import squares_by_autograd
from .tolerance import agrees, autocast_dtype, tolerance_of

__all__ = ["SmallRun", "run_small", "run_small_model"]


@dataclass(slots=True, eq=False)
class SmallRun:
    """What the small run showed.

    Attributes:
        watch: holds the calls.
        squares: name → squared norm of the gradient of the seeded sample.
        shapes: of the tensors in the model's output.
        touches: whether the output of one sample was seen to depend on the input of another.
    """

    watch: FunctionWatch
    squares: dict[str, float]
    shapes: list[tuple[int, ...]]
    touches: bool = False

    @property
    def samples(self) -> int:
        """How many samples there were."""
        return self.watch.samples

    @property
    def calls(self) -> list[Call]:
        """The calls, in order."""
        return self.watch.calls

    def forget(self) -> None:
        """Let go of every tensor except the structure."""
        self.watch.forget()

    def check(self, subject: Subject, budget: int) -> dict[str, str]:
        """Compare the rules with autograd; the layouts must be known.

        Returns:
            Name → what is wrong, for each parameter whose rows cannot be trusted.
        """
        options = BankOptions(every_layer=True, budget=budget)
        bank = Bank(subject.names, self.watch.uses, self.samples, options)
        wrong: dict[int, str] = {}
        for call in self.calls:
            if all(out.grad is None for out in call.outs):
                continue
            try:
                for found in contributions(call, budget):
                    bank.add(found)
            except Exception as error:
                for origin in call.tracked.values():
                    for root in origin.roots:
                        wrong[root] = f"{call.name}: {type(error).__name__}: {error}"
        bank.flush()
        names = subject.names
        reasons = {names[root]: reason for root, reason in wrong.items()}
        whole = sum(self.squares.values())
        if not math.isfinite(whole):
            return reasons  # there is nothing to hold the rules against
        for name, truth in self.squares.items():
            limit = tolerance_of(subject.parameters[name].dtype, autocast_dtype())
            fault = _fault(bank.layers.get(name), truth, whole, limit)
            if fault:
                reasons.setdefault(name, fault)
        return reasons


def _fault(gram: Tensor | None, truth: float, whole: float, limit: tuple[float, float]) -> str:
    each = [0.0] if gram is None else gram.diagonal().tolist()
    own = 0.0 if gram is None else each[SEEDED]
    other = sum(each) - own
    if not agrees(other, 0.0, scale=own + truth, whole=whole, limit=limit):
        return "the gradient of one sample reaches the rows of another"
    if not agrees(own, truth, scale=truth, whole=whole, limit=limit):
        return f"squared norm {own:.6g} by the rules, {truth:.6g} by autograd"
    return ""


def run_small(subject: Subject, batch: Batch, loss_fn: LossFunction | None) -> SmallRun:
    """Run model and loss on two samples.

    Args:
        subject: model and parameters.
        batch: the whole batch.
        loss_fn: loss.
    """
    two = _few(batch, 2)
    watch = FunctionWatch(subject.parameters, two.tensors(), 2, Recorder())
    with batch_statistics_frozen(subject.model), module_units(subject, watch), watch.watching():
        output = subject.model(*two.args, **two.kwargs)
        loss = two.loss(output, loss_fn)
    losses = per_sample_losses(loss, 2)
    seeds = seeded_alone(output, 2) if losses is None else ([losses[SEEDED]], None)
    return _measured(subject, watch, seeds, output)


def run_small_model(subject: Subject, batch: Batch) -> SmallRun:
    """Run the model alone on a few samples, with a random gradient at its outputs.

    Four where there are more: what couples samples may have no effect on two.
    """
    count = max(2, min(4, batch.samples - 1))
    few, inputs = followed_inputs(batch, _few(batch, count))
    watch = FunctionWatch(subject.parameters, few.tensors(), count, Recorder())
    with batch_statistics_frozen(subject.model), module_units(subject, watch), watch.watching():
        output = subject.model(*few.args, **few.kwargs)
    seeds = seeded_alone(output, count)
    found = _measured(subject, watch, seeds, output)
    watch.busy = True  # the calls have their gradients
    found.touches = others_feel(inputs, *seeds)
    watch.busy = False
    return found


def _few(batch: Batch, count: int) -> Batch:
    return batch.take([*range(count - 1), batch.samples - 1])


def _measured(
    subject: Subject,
    watch: FunctionWatch,
    seeds: tuple[list[Tensor], list[Tensor] | None],
    output: object,
) -> SmallRun:
    squares = squares_by_autograd(*seeds, subject.parameters, retain_graph=True)
    return SmallRun(watch, squares, [tuple(value.shape) for value in outputs_in(output)])


def seeded_alone(output: object, samples: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the differentiable outputs, and random cotangents that are zero but for one sample.

    Neither the first nor the last of several, so that steps of time are not taken for samples: what
    comes earlier acts on what comes later, or the other way round.

    Args:
        output: of the model.
        samples: the samples lie along the first axis of this length, else along the first that it
            divides.
    """
    generator = torch.Generator().manual_seed(0)
    values, cotangents = [], []
    for value in outputs_in(output):
        axis = _axis_of(value, samples)
        if not value.requires_grad or axis is None:
            continue
        noise = torch.randn(value.shape, generator=generator).to(value.device, value.dtype)
        own = value.shape[axis] // samples
        alone = torch.zeros_like(noise)
        alone.narrow(axis, SEEDED * own, own).copy_(noise.narrow(axis, SEEDED * own, own))
        values.append(value)
        cotangents.append(alone)
    return values, cotangents


def _axis_of(value: Tensor, samples: int) -> int | None:
    sizes = list(enumerate(value.shape))
    exact = next((axis for axis, size in sizes if size == samples), None)
    if exact is not None:
        return exact
    return next((axis for axis, size in sizes if size and size % samples == 0), None)

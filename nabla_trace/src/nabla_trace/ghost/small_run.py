"""A run with two samples of the batch, from which the structure of the big one is learnt.

Only the first sample gets a gradient. That makes three things visible at once: along which axis the
samples lie, whether the gradient of one sample reaches the rows of another, and whether the rules
give what autograd gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..batches import Batch, LossFunction, outputs_in
from ..untouched import batch_statistics_frozen
from .bank import Bank, BankOptions
from .call import Call
from .contributions import contributions
from .forward_pass import Subject, module_units
from .function_watch import FunctionWatch
from .loops import Reduction, per_sample_losses
from .receivers import Recorder
from .squares import squares_by_autograd
from .tolerance import agrees, autocast_dtype, tolerance_of

__all__ = ["SmallRun", "run_small", "run_small_model"]


@dataclass(slots=True, eq=False)
class SmallRun:
    """What the small run showed.

    Attributes:
        watch: holds the calls.
        squares: name → squared norm of the gradient of the first sample's loss.
        reduction: of the loss.
    """

    watch: FunctionWatch
    squares: dict[str, float]
    reduction: Reduction

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
        bank = Bank(subject.names, self.watch.uses, 2, options)
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
        for name, truth in self.squares.items():
            limit = tolerance_of(subject.parameters[name].dtype, autocast_dtype())
            fault = _fault(bank.layers.get(name), truth, whole, limit)
            if fault:
                reasons.setdefault(name, fault)
        return reasons


def _fault(gram: Tensor | None, truth: float, whole: float, limit: tuple[float, float]) -> str:
    own = 0.0 if gram is None else float(gram[0, 0])
    other = 0.0 if gram is None else float(gram[1, 1])
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
    two, watch = _watch_two(subject, batch)
    with batch_statistics_frozen(subject.model), module_units(subject, watch), watch.watching():
        output = subject.model(*two.args, **two.kwargs)
        loss = two.loss(output, loss_fn)
    losses = per_sample_losses(loss, 2)
    if losses is not None:
        return _measured(subject, watch, ([losses[0]], None), "none")
    return _measured(subject, watch, first_half(output), find_reduction(two, output, loss_fn))


def run_small_model(subject: Subject, batch: Batch) -> SmallRun:
    """Run the model alone on two samples, with a random gradient at its outputs."""
    two, watch = _watch_two(subject, batch)
    with batch_statistics_frozen(subject.model), module_units(subject, watch), watch.watching():
        output = subject.model(*two.args, **two.kwargs)
    return _measured(subject, watch, first_half(output), "unknown")


def _watch_two(subject: Subject, batch: Batch) -> tuple[Batch, FunctionWatch]:
    two = batch.take([0, batch.samples - 1])
    return two, FunctionWatch(subject.parameters, two.tensors(), 2, Recorder())


def _measured(
    subject: Subject,
    watch: FunctionWatch,
    seeds: tuple[list[Tensor], list[Tensor] | None],
    reduction: Reduction,
) -> SmallRun:
    squares = squares_by_autograd(*seeds, subject.parameters, retain_graph=True)
    return SmallRun(watch, squares, reduction)


def first_half(output: object) -> tuple[list[Tensor], list[Tensor]]:
    """Return the differentiable outputs, and random cotangents that are zero for sample two."""
    generator = torch.Generator().manual_seed(0)
    values, cotangents = [], []
    for value in outputs_in(output):
        axis = next((a for a, size in enumerate(value.shape) if size % 2 == 0 and size), None)
        if not value.requires_grad or axis is None:
            continue
        noise = torch.randn(value.shape, generator=generator).to(value.device, value.dtype)
        half = value.shape[axis] // 2
        noise.narrow(axis, half, half).zero_()
        values.append(value)
        cotangents.append(noise)
    return values, cotangents


def find_reduction(two: Batch, output: object, loss_fn: LossFunction | None) -> Reduction:
    """Find out whether a loss averages or sums, from one sample given once and twice."""
    if loss_fn is None or not isinstance(output, Tensor) or not output.dim():
        return "unknown"
    once, twice = two.take([0]), two.take([0, 0])
    try:
        with torch.no_grad():
            single = float(once.loss(output[:1], loss_fn))
            double = float(twice.loss(output[:1].repeat_interleave(2, 0), loss_fn))
    except (RuntimeError, ValueError, TypeError, IndexError):
        return "unknown"
    ratio = double / single if single else 0.0
    if abs(ratio - 1) < 1e-3:
        return "mean"
    return "sum" if abs(ratio - 2) < 1e-3 else "unknown"

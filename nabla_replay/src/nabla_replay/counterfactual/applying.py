"""Puts one change into a program that is about to be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from nabla_core.errors import UsageError

from ..replaying.program import Program
from .batches import without_samples
from .changes import (
    Change,
    ClipGradients,
    DivideRate,
    HoldRate,
    RaisePrecision,
    SkipBatches,
    WithoutSamples,
)
from .widening import widened

__all__ = ["Clock", "applied"]

Hook = Callable[[Optimizer], None]


@dataclass(slots=True)
class Clock:
    """The step that is being executed."""

    step: int = -1


@contextmanager
def applied(program: Program, change: Change | None, *, keep: bool = True) -> Iterator[Program]:
    """Give a program that differs in one thing; it is as it was after the block.

    Args:
        program: made for this one replay.
        change: what differs; ``None`` changes nothing.
        keep: see :func:`.widening.widened`.

    Raises:
        UsageError: the model has no module of that name, or ``max_norm`` is not known.
    """
    clock = Clock()
    with ExitStack() as stack:
        match change:
            case DivideRate() | HoldRate():
                _on_steps(stack, program, *_with_rates(_rates(change, clock)))
            case ClipGradients():
                _on_steps(stack, program, _clipped(change, clock), _nothing)
            case RaisePrecision(module=path, since=since):
                module = dict(program.parts.model.named_modules()).get(path)
                if module is None:
                    raise UsageError(f"RaisePrecision(module={path!r}): the model has none")
                dtype = getattr(torch, change.dtype)
                stack.enter_context(widened(module, dtype, lambda: clock.step >= since, keep=keep))
        yield replace(program, step=_stepper(program, change, clock))


def _stepper(program: Program, change: Change | None, clock: Clock) -> Callable[..., object]:
    def step(number: int, batch: object) -> object:
        clock.step = number
        if isinstance(change, SkipBatches) and number in change.steps:
            return None
        if isinstance(change, WithoutSamples) and number == change.step:
            batch = without_samples(batch, change.samples)
        return program.step(number, batch)

    return step


def _on_steps(stack: ExitStack, program: Program, before: Hook, after: Hook) -> None:
    for optimizer in program.parts.optimizers:
        first = optimizer.register_step_pre_hook(lambda one, args, kwargs: before(one))
        last = optimizer.register_step_post_hook(lambda one, args, kwargs: after(one))
        stack.callback(first.remove)
        stack.callback(last.remove)


def _rates(change: DivideRate | HoldRate, clock: Clock) -> Callable[[Optimizer], list[object]]:
    """Return what gives the rates with which an optimizer acts."""
    known: dict[int, list[float]] = {}

    def divided(optimizer: Optimizer, factor: float) -> list[object]:
        return [group["lr"] / factor for group in optimizer.param_groups]

    def held(optimizer: Optimizer) -> list[object]:
        now = [float(group["lr"]) for group in optimizer.param_groups]
        if clock.step < change.since:
            known[id(optimizer)] = now
        limits = known.get(id(optimizer), now)
        return [min(rate, limit) for rate, limit in zip(now, limits, strict=False)]

    if isinstance(change, HoldRate):
        return held
    factor = change.factor
    return lambda optimizer: divided(optimizer, factor if clock.step >= change.since else 1.0)


def _with_rates(rates_of: Callable[[Optimizer], list[object]]) -> tuple[Hook, Hook]:
    """Other rates only while the optimizer acts: a schedule multiplies what it finds."""
    kept: dict[int, list[object]] = {}

    def before(optimizer: Optimizer) -> None:
        kept[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, rates_of(optimizer), strict=False):
            group["lr"] = rate

    def after(optimizer: Optimizer) -> None:
        for group, rate in zip(optimizer.param_groups, kept.pop(id(optimizer), ()), strict=False):
            group["lr"] = rate

    return before, after


def _clipped(change: ClipGradients, clock: Clock) -> Hook:
    limit = change.max_norm
    if limit is None:
        raise UsageError("ClipGradients: no step before it tells what the gradient norm usually is")

    def before(optimizer: Optimizer) -> None:
        if clock.step >= change.since:
            clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], limit)

    return before


def _nothing(optimizer: Optimizer) -> None:
    """After the step nothing has to be put back."""

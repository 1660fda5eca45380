"""What changed between the last good step and the first bad one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..capturing.parts import Parts
from ..store.entries import StepEntry

__all__ = ["Change", "changes_between", "norms_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that differs.

    Attributes:
        name: ``batch``, ``lr``, ``loss``, ``grad_norm``, ``epoch``, ...
        before: at the last good step.
        after: at the first bad one.
    """

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}"


def changes_between(
    good: StepEntry,
    bad: StepEntry,
    norms: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
) -> tuple[Change, ...]:
    """Compare two neighbouring steps; what surprises most is not for us to say.

    Args:
        good: record of the last good step.
        bad: record of the first bad step.
        norms: measured in a replay, at the one and at the other.
    """
    return tuple(_changes(good, bad, norms))


@torch.no_grad()
def norms_of(parts: Parts) -> dict[str, float]:
    """Return global L2 norms of parameters and gradients, and the largest gradient's share."""
    parameters = [one for one in parts.model.parameters() if one.is_floating_point()]
    gradients = [one.grad for one in parameters if one.grad is not None]
    found = {"parameter_norm": _norm(parameters)}
    if gradients:
        found["grad_norm"] = _norm(gradients)
        found["grad_absmax"] = max(float(one.abs().max()) for one in gradients if one.numel())
    return found


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(one.double().square().sum()) for one in tensors))


def _changes(
    good: StepEntry,
    bad: StepEntry,
    norms: tuple[Mapping[str, float], Mapping[str, float]],
) -> Iterator[Change]:
    losses = [{} if one.loss is None else {"loss": one.loss} for one in (good, bad)]
    yield from _numbers(losses[0], losses[1])
    yield from _numbers(good.signals, bad.signals)
    yield from _numbers(*norms)
    if bad.batch is not None and good.batch != bad.batch:
        yield Change(name="batch", before=_batch(good), after=_batch(bad))
    epochs = [one.digests.get("loader", "").partition(":")[0] for one in (good, bad)]
    scalers = [one.digests.get("scaler", "(none)") for one in (good, bad)]
    steps = [str(good.step), str(bad.step)]
    if epochs[0] != epochs[1]:
        yield Change(name="epoch", before=epochs[0], after=epochs[1])
    if scalers[0] != scalers[1]:
        yield Change(name="scaler state", before=scalers[0], after=scalers[1])
    if good.step + 1 != bad.step:
        yield Change(name="recorded step", before=steps[0], after=steps[1])


def _numbers(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield Change(name=name, before=_number(one), after=_number(other))


def _number(value: float | None) -> str:
    return "(none)" if value is None else f"{value:.6g}"


def _batch(entry: StepEntry) -> str:
    if entry.batch is None or isinstance(entry.batch, str):
        return str(entry.batch)
    shown = ", ".join(map(str, entry.batch[:8]))
    return f"samples {shown}{', ...' if len(entry.batch) > 8 else ''}"

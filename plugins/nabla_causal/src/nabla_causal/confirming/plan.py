"""Which change would make the symptom vanish if a hypothesis is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nabla_replay.counterfactual.changes import (
    Change,
    ClipGradients,
    DivideRate,
    HoldRate,
    RaisePrecision,
    SkipBatches,
    WithoutSamples,
)

from ..hypotheses import Hypothesis

__all__ = ["Proposal", "proposals_for"]

_NARROW = ("float16", "bfloat16")
_SEEN_LATE = 5
_GROWS_STEPS = 2
"""So many steps a batch that throws the weights far off may take to make a number not finite."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change, and what follows when the symptom stays.

    Attributes:
        change: what is changed.
        refutes: whether a hypothesis is wrong when the symptom stays; else it only goes without
            this confirmation.
    """

    change: Change
    refutes: bool


def proposals_for(hypothesis: Hypothesis) -> tuple[Proposal, ...]:
    """Return the tests of a hypothesis that a replay can run; none for most faults of the loop.

    A fault that a rule found exactly is not refuted by a symptom that stays: something else may be
    wrong as well.
    """
    root = hypothesis.root
    step = root.first_step
    exact = root.rule.startswith(("NUM", "AUD"))
    match root.failure:
        case "data_anomaly":
            return tuple(_about_data(hypothesis, refutes=not exact))
        case "step_too_large":
            return tuple(_about_rate(step, jumped=root.rule == "RUN204"))
        case "exploding_gradients":
            return (
                Proposal(ClipGradients(since=_early(step)), refutes=True),
                Proposal(SkipBatches(steps=(step,)), refutes=False),
            )
        case "precision_loss" | "scale_collapse":
            return (Proposal(_wider(hypothesis), refutes=True),)
        case "non_finite":
            return tuple(_about_numbers(hypothesis))
        case "exploding_activations" | "optimizer_instability" | "weight_growth":
            return tuple(_about_anything(hypothesis))
    return ()


def _about_data(hypothesis: Hypothesis, *, refutes: bool) -> Iterator[Proposal]:
    root = hypothesis.root
    if root.sample is not None:
        change = WithoutSamples(step=root.first_step, samples=(root.sample,))
        yield Proposal(change, refutes=False)  # another sample may be bad too
    yield Proposal(SkipBatches(steps=(root.first_step,)), refutes=refutes)


def _about_rate(step: int, *, jumped: bool) -> Iterator[Proposal]:
    """A rate that is too high by a thousand times is no more so after a division by a thousand."""
    if jumped:
        yield Proposal(HoldRate(since=step), refutes=True)
        return
    yield Proposal(_smaller(step), refutes=False)
    yield Proposal(DivideRate(since=_early(step), factor=1000.0), refutes=True)


def _about_numbers(hypothesis: Hypothesis) -> Iterator[Proposal]:
    """A number that is not finite: too large for its type, of its batch, or of the step before."""
    root = hypothesis.root
    step = root.first_step
    if root.dtype in _NARROW or root.rule in ("NUM101", "NUM103"):
        yield Proposal(_wider(hypothesis), refutes=False)
    if root.sample is not None:
        yield Proposal(WithoutSamples(step=step, samples=(root.sample,)), refutes=False)
    if root.rule == "NUM105":
        yield Proposal(_smaller(step), refutes=False)
        return
    for back in range(min(_GROWS_STEPS, step) + 1):
        yield Proposal(SkipBatches(steps=(step - back,)), refutes=False)
    yield Proposal(_smaller(step), refutes=False)


def _about_anything(hypothesis: Hypothesis) -> Iterator[Proposal]:
    """No rule says why: the batch, the rate, the gradient or the type of the layer."""
    step = hypothesis.root.first_step
    for change in (
        SkipBatches(steps=(step,)),
        HoldRate(since=_early(step)),
        _smaller(step),
        ClipGradients(since=_early(step)),
    ):
        yield Proposal(change, refutes=False)


def _wider(hypothesis: Hypothesis) -> RaisePrecision:
    root = hypothesis.root
    narrow = root.dtype in ("", *_NARROW)
    return RaisePrecision(
        since=root.first_step, module=root.layer, dtype="float32" if narrow else "float64"
    )


def _smaller(step: int) -> DivideRate:
    return DivideRate(since=_early(step))


def _early(step: int) -> int:
    """A statistical rule sees a fault some steps after it began."""
    return max(0, step - _SEEN_LATE)

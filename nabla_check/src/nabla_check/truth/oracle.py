"""The numerical oracle: is a directional derivative right, wrong, undefined, or not decidable?

One projection ``<u, J v>`` by central differences with a Richardson step that brings its own
error bar; further step sizes only when the first does not agree. A failure needs two step sizes
that agree with each other and not with the analytic value, and no one-sided slopes that stay apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch

from .products import as_vector
from .resolution import Resolution

__all__ = [
    "FINE",
    "WIDE",
    "Curve",
    "State",
    "Verdict",
    "glance",
    "judge",
    "judge_by_the_way",
]

State = Literal["agrees", "differs", "kink", "undecided"]


_MOST_KEPT = 2**22
"""Numbers that a curve keeps, to be asked for again without a call."""


class Curve:
    """A function along a line, ``t -> f(x + t v)``, seen through fixed weights.

    Args:
        evaluate: returns the outputs at ``t``.
        weights: one per output; the projection is the real inner product with them.
        centre: outputs at ``t = 0``.
        width: elements that move along the line.
    """

    def __init__(
        self,
        evaluate: Callable[[float], Sequence[torch.Tensor]],
        weights: Sequence[torch.Tensor],
        centre: Sequence[torch.Tensor],
        width: int = 0,
    ) -> None:
        self.width = width
        self._evaluate = evaluate
        self.weights = as_vector(weights)
        self.centre = as_vector(centre)
        self._known: dict[float, torch.Tensor] = {}

    @cached_property
    def size(self) -> float:
        """Sum of the magnitudes of the weighted outputs at the centre."""
        return float(torch.dot(self.centre.abs(), self.weights.abs()))

    def at(self, t: float) -> torch.Tensor:
        """Return the outputs at ``t`` as one real vector."""
        known = self._known.get(t)
        if known is not None:
            return known
        found = as_vector(self._evaluate(t))
        if len(self._known) * found.numel() < _MOST_KEPT:
            self._known[t] = found
        return found

    def central(self, step: float) -> float:
        """Return one central difference; its error is of second order in ``step``."""
        return float(torch.dot(self.at(step) - self.at(-step), self.weights)) / (2 * step)

    def one_sided(self, step: float) -> tuple[float, float]:
        """Return the gap between the one-sided slopes and their size, summed over the outputs.

        Per output element, so that two kinks cannot cancel.
        """
        rise = (self.at(step) - self.centre) * self.weights
        fall = (self.centre - self.at(-step)) * self.weights
        gap, slope = float((rise - fall).abs().sum()), float((rise.abs() + fall.abs()).sum())
        return gap / step, slope / step


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the oracle found for one direction.

    Attributes:
        state: agrees, differs, kink or undecided.
        analytic: the derivative under test.
        numeric: the numerical derivative, NaN when no step was usable.
        bar: error bar of ``numeric``.
        step: relative step size of ``numeric``.
        by_noise: it agrees for no better reason than that the outputs move by noise alone.
    """

    state: State
    analytic: float
    numeric: float
    bar: float
    step: float
    by_noise: bool = False


_KINK_SHARE = {True: 1e-7, False: 1e-2}
"""Smallest gap between one-sided slopes, relative to them, that counts: in float64, in less."""

_GLANCE = 0.1
"""A glance acquits within this share of the sharpest bar, 1e-6 in float64."""


_TRUST = 1e3
"""Up to this many times what was measured, the analytic value sets the scale of sharpness."""


FINE = 1e-12
"""Unit roundoff below which tiny steps can be measured: that of float64."""

WIDE = 2**16
"""Elements from which on a direction is wide, and every evaluation is dear."""

_BETWEEN_KINKS = ((2.0**-22, 2e-6), (2.0**-27, 1e-6))
"""Where many elements move, an ordinary step crosses some kink of a piecewise function. These
steps are so small that they cross none; they acquit within what their rounding takes."""


@dataclass(frozen=True, slots=True)
class _Estimate:
    value: float
    tight: float
    bar: float
    step: float
    size: float


_NOTHING = _Estimate(math.nan, math.nan, math.inf, math.nan, 0.0)


def judge_by_the_way(
    curve: Curve, analytic: float, scale: float, resolution: Resolution
) -> Verdict:
    """:func:`judge` with few evaluations of a wide direction; more is left undecided."""
    scale = scale if math.isfinite(scale) else 0.0
    step, limit = resolution.ladder[1], resolution.tolerance * scale
    first = curve.central(step)
    if abs(analytic - first) <= limit:
        return Verdict(state="agrees", analytic=analytic, numeric=first, bar=limit, step=step)
    verdict = _between_kinks(curve, analytic, scale)
    return _verdict("undecided", analytic, _NOTHING) if verdict is None else verdict


def judge(curve: Curve, analytic: float, scale: float, resolution: Resolution) -> Verdict:
    """Judge one analytic directional derivative.

    Args:
        curve: the function along the direction.
        analytic: derivative under test, ``<u, J v>``.
        scale: root of the summed squares of its terms, against which deviations are relative.
        resolution: of the dtype in which ``curve`` is evaluated.

    Returns:
        The verdict; ``undecided`` where no step size is sharp enough.
    """
    scale = scale if math.isfinite(scale) else 0.0
    first, limit = curve.central(resolution.ladder[1]), resolution.tolerance * scale
    if abs(analytic - first) <= limit:  # true for all but steep or noisy functions
        step = resolution.ladder[1]
        return Verdict(state="agrees", analytic=analytic, numeric=first, bar=limit, step=step)
    if curve.width > WIDE and resolution.unit < FINE:
        verdict = _between_kinks(curve, analytic, scale)
        if verdict is not None:
            return verdict
    sharp: list[_Estimate] = []
    for step in resolution.ladder:
        found = _estimate(curve, step, resolution.unit)
        if not math.isfinite(found.value):
            continue
        if not found.bar <= _room(found, scale, resolution):
            continue
        better = [x for x in sharp if x.bar < found.bar and _agree(found, x)]
        sharp.append(found)
        if _error(analytic, found) <= found.tight and not better:
            return _verdict("agrees", analytic, found)
        if _is_refuted(analytic, scale, resolution, sharp):
            break
    return _conclude(curve, analytic, scale, resolution, sharp)


def _between_kinks(curve: Curve, analytic: float, scale: float) -> Verdict | None:
    """Judge a wide direction by two steps too small to cross a kink; ``None`` if they cannot.

    At a kink of the point itself any slope between the one-sided ones is right, so that a deviation
    counts only beyond their gap.
    """
    found = []
    for step, share in _BETWEEN_KINKS:
        value, bar = curve.central(step), share * scale
        found.append(_Estimate(value=value, tight=bar, bar=bar, step=step, size=0.0))
        if _error(analytic, found[-1]) <= bar:
            return _verdict("agrees", analytic, found[-1])
    first, second = found
    bar = first.bar + second.bar
    gap, _ = curve.one_sided(first.step)
    agree = abs(first.value - second.value) <= bar
    if agree and _error(analytic, first) > 4 * bar + 2 * gap:
        return _verdict("differs", analytic, first)
    return None


def _room(found: _Estimate, scale: float, resolution: Resolution) -> float:
    """Return the largest error bar with which an estimate counts as sharp.

    A huge analytic value is no licence for a blunt measurement: beside a singularity the
    differences of all step sizes are small against it, and none of them is a derivative.
    """
    measured = abs(found.value) + found.size
    bounded = min(scale, _TRUST * measured)
    return resolution.sharp * (bounded + abs(found.value) + 1e-4 * found.size)


def glance(curve: Curve, analytic: float, scale: float, resolution: Resolution) -> bool:
    """Whether one central difference is enough to acquit; ``False`` says nothing.

    Two evaluations instead of four or more, for the places where gross faults are looked for.
    """
    step = resolution.ladder[1]
    rounding = 16 * resolution.unit / step * curve.size
    room = _GLANCE * resolution.sharp * scale
    return rounding <= 10 * room and abs(analytic - curve.central(step)) <= room + rounding


def _conclude(
    curve: Curve,
    analytic: float,
    scale: float,
    resolution: Resolution,
    sharp: list[_Estimate],
) -> Verdict:
    best = min(sharp, key=lambda found: found.bar, default=_NOTHING)
    if _error(analytic, best) <= best.bar + resolution.tolerance * scale:
        return _verdict("agrees", analytic, best)
    noise = _noise(curve)
    flat = _flatness(curve, noise, resolution.ladder[0])
    if flat is not None and abs(analytic) <= flat:
        found = _verdict("agrees", analytic, replace(best, value=0.0, bar=flat))
        return replace(found, by_noise=True)
    if _has_kink(curve, resolution, sharp, noise):
        return _verdict("kink", analytic, best)
    if _is_refuted(analytic, scale, resolution, sharp):
        return _verdict("differs", analytic, best)
    return _verdict("undecided", analytic, best)


def _is_refuted(
    analytic: float, scale: float, resolution: Resolution, sharp: Sequence[_Estimate]
) -> bool:
    """Whether two step sizes agree with each other, and the analytic value with neither."""
    best = min(sharp, key=lambda found: found.bar, default=_NOTHING)
    limit = 4 * best.bar + resolution.tolerance * scale
    return any(
        other is not best
        and _agree(best, other)
        and _error(analytic, best) > limit + 2 * abs(best.value - other.value)
        for other in sharp
    )


def _noise(curve: Curve) -> float:
    """Change of the weighted outputs under steps that are nothing but rounding."""
    changes = [(curve.at(step) - curve.centre) * curve.weights for step in (2.0**-50, -(2.0**-49))]
    return max(float(change.abs().sum()) for change in changes)


def _flatness(curve: Curve, noise: float, step: float) -> float | None:
    """Return the largest slope that hides in the noise when the function does not change at all
    along the direction, as one that cancels to a constant; else ``None``."""
    change = float(((curve.at(step) - curve.at(-step)) * curve.weights).abs().sum())
    return 64 * noise / step if change <= 32 * noise else None


def _verdict(state: State, analytic: float, found: _Estimate) -> Verdict:
    return Verdict(
        state=state, analytic=analytic, numeric=found.value, bar=found.bar, step=found.step
    )


def _error(analytic: float, found: _Estimate) -> float:
    return abs(analytic - found.value) if math.isfinite(analytic) else math.inf


def _agree(a: _Estimate, b: _Estimate) -> bool:
    return abs(a.value - b.value) <= 2 * (a.bar + b.bar) + 1e-9 * abs(a.value)


def _estimate(curve: Curve, step: float, unit: float) -> _Estimate:
    plus, minus = curve.at(step), curve.at(-step)
    half_plus, half_minus = curve.at(step / 2), curve.at(-step / 2)
    wide = float(torch.dot(plus - minus, curve.weights)) / (2 * step)
    narrow = float(torch.dot(half_plus - half_minus, curve.weights)) / step
    rounding = 32 * unit / step * curve.size
    gap = abs(narrow - wide)
    # The Richardson value is far better than the gap between its two parts; the generous bar is
    # for accusing, the tight one for acquitting.
    return _Estimate(
        value=(4 * narrow - wide) / 3,
        tight=gap / 16 + rounding,
        bar=2 * gap + rounding,
        step=step,
        size=curve.size / max(plus.numel(), 1) ** 0.5,
    )


def _has_kink(
    curve: Curve, resolution: Resolution, sharp: Sequence[_Estimate], noise: float
) -> bool:
    """Whether one-sided slopes differ by an amount that does not shrink with the step.

    Looked at below the smallest step that resolved the function: a steep function has no kink.
    """
    steps = resolution.one_sided
    if sharp:
        shrink = min(found.step for found in sharp) / resolution.ladder[0]
        steps = (steps[0] * shrink, steps[1] * shrink, steps[2] * shrink)
    gaps = []
    slope = 0.0
    for step in steps:
        gap, slope = curve.one_sided(step)
        gaps.append(gap)
    share = _KINK_SHARE[resolution.unit < 1e-12]
    # rounding of the outputs, and of the inputs through the slope
    floor = share * slope + 64 * resolution.unit / steps[2] * (curve.size + slope)
    floor += 16 * noise / steps[2]
    return all(map(math.isfinite, gaps)) and gaps[2] > floor and gaps[2] > 0.4 * gaps[0]

"""How far a step went along its own direction, from losses before and after it.

``alpha`` is the scale of Cockpit (Schneider et al. 2021, arXiv 2102.06604): -1 no progress towards
the minimum along the step, 0 exactly there, +1 at the mirror point with the loss of the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NextBatchProbe", "OwnBatchProbe", "alpha_of_means", "alpha_of_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBatchProbe:
    """A step, judged on the batch that it was made from.

    Attributes:
        step: optimizer step, from 0.
        before: loss before it.
        after: loss of the same batch after it; NaN when it was not taken.
        slope: inner product of gradient and step.
    """

    step: int
    before: float
    after: float
    slope: float

    @property
    def alpha(self) -> float:
        """See :func:`alpha_of_step`."""
        return alpha_of_step(self.before, self.after, self.slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBatchProbe:
    """A step, judged on the batch after it.

    Attributes:
        step: optimizer step, from 0.
        before: loss of the next batch with the parameters before the step.
        half: the same with half of the step made; on the parabola, when the slope was measured.
        after: with all of it made: the next training loss.
        resolution: by how much rounding may change these losses.
    """

    step: int
    before: float
    half: float
    after: float
    resolution: float = 0.0

    @classmethod
    def from_slope(
        cls, *, step: int, before: float, after: float, slope_after: float, resolution: float = 0.0
    ) -> NextBatchProbe:
        """Return the probe whose parabola has a slope at its end.

        Args:
            step: optimizer step.
            before: loss before it.
            after: loss after it.
            slope_after: inner product of step and gradient after it.
            resolution: by how much rounding may change the losses.
        """
        half = (before + after) / 2 - (slope_after - (after - before)) / 4
        return cls(step=step, before=before, half=half, after=after, resolution=resolution)

    @property
    def curvature(self) -> float:
        """Second-order part of the change."""
        return 2 * (self.after + self.before - 2 * self.half)

    @property
    def slope(self) -> float:
        """First-order part of the change."""
        return self.after - self.before - self.curvature

    @property
    def is_finite(self) -> bool:
        """Whether all three losses are finite."""
        return all(map(math.isfinite, (self.before, self.half, self.after)))


def alpha_of_step(before: float, after: float, slope: float) -> float:
    """Return alpha of one step; NaN when it does not go downhill, infinite when the loss is.

    NaN also when the loss after the step was not taken.

    A parabola through the loss before, its slope, and the loss after.
    """
    if math.isinf(after):
        return math.inf
    if math.isnan(after) or not slope < 0:
        return math.nan
    curvature = after - before - slope
    return _alpha(slope, curvature)


def alpha_of_means(probes: Sequence[NextBatchProbe]) -> float:
    """Return alpha from the mean slope and the mean curvature of some probes.

    Means first: the slope on another batch is small against its noise. Infinite when the steps
    raise the loss of other batches; NaN without a finite probe. Steps whose effect is below the
    rounding of the loss are straight lines: -1 downhill, else NaN, as for steps that are zero.
    """
    known = [probe for probe in probes if probe.is_finite]
    if not known:
        return math.nan
    slope = sum(probe.slope for probe in known) / len(known)
    curvature = sum(probe.curvature for probe in known) / len(known)
    if max(abs(slope), abs(curvature)) <= sum(probe.resolution for probe in known) / len(known):
        measured = slope + 2 * curvature  # of the gradient: the losses cancel in it
        return -1.0 if measured < 0 else math.nan
    return _alpha(slope, curvature) if slope < 0 else math.inf


def _alpha(slope: float, curvature: float) -> float:
    # rounding of the losses can leave a line with a tiny negative curvature
    return 1 / (-slope / (2 * curvature)) - 1 if curvature > 0 else -1.0

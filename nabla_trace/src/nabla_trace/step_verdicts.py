"""GEO3xx: are the optimizer's steps too small, at the noise floor, or uphill?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

from .options import TraceOptions
from .rules.step_size import (
    STEP_ABOVE_NOISE,
    STEP_EARLY_JUMP,
    STEP_NOT_DESCENT,
    STEP_TOO_SMALL,
)
from .step_probes import NextBatchProbe, OwnBatchProbe, alpha_of_means

__all__ = ["EARLY_STEPS", "step_issues"]

EARLY_STEPS = (0, 1, 2, 3, 5)
"""Steps that are looked at besides every n-th: what goes wrong first goes wrong here."""

_FEWEST = 5
_SOON_GONE = 1.0
"""Rise in first losses up to which it does not matter if the loss is below its start again."""

_FALLEN = 0.5
"""Share of the first loss below which a jump in the first steps is made up for."""

_RISEN = 1.5
"""Share of the first loss from which being at the noise floor is no matter of taste."""

_BLOWN_UP = 10.0
"""Rise in first losses from which one step is enough to tell."""


def step_issues(
    own: Sequence[OwnBatchProbe], following: Sequence[NextBatchProbe], options: TraceOptions
) -> Iterator[Issue]:
    """Yield at most one verdict about size, and one about direction.

    Args:
        own: probes on the steps' own batches.
        following: probes on the batches after them.
        options: limits.
    """
    yield from _direction(own)
    if not following:
        return
    jump = _early_jump(following)
    if jump is not None and jump[0] > options.early_jump and _is_made_up_for(jump[0], following):
        jump, following = None, _later(following)
    sure = len(following) >= _FEWEST or (jump is not None and jump[0] > _BLOWN_UP)
    if jump is not None and sure and jump[0] > options.early_jump:
        yield _jumped(*jump, limit=options.early_jump)
        return
    if len(following) < _FEWEST:
        return
    alpha, last = alpha_of_means(following), following[-1].step
    if alpha >= options.noise_alpha:
        yield STEP_ABOVE_NOISE.issue(
            f"Judged on the next batch, {len(following)} steps end at alpha {alpha:.2f}, limit "
            f"{options.noise_alpha:.2f}: at or above the noise floor of this batch size.",
            step=last,
            phase="optimizer",
            severity=None if _level(following) > _RISEN else Severity.INFO,
            confidence=0.8,
            alpha=Quantity(value=alpha, limit=options.noise_alpha),
            probes=len(following),
        )
    elif alpha < options.too_small_alpha and _stays_small(own, options):
        yield STEP_TOO_SMALL.issue(
            f"{len(following)} steps end at alpha {alpha:.3f}, limit "
            f"{options.too_small_alpha:.2f}: they make less than a tenth of the way to the minimum "
            "along themselves.",
            step=last,
            phase="optimizer",
            severity=None if _gets_nowhere(alpha, following) else Severity.INFO,
            confidence=0.8,
            alpha=Quantity(value=alpha, limit=options.too_small_alpha),
            probes=len(following),
        )


def _stays_small(own: Sequence[OwnBatchProbe], options: TraceOptions) -> bool:
    """Whether the steps' own batches, where they are known, say the same."""
    known = [probe.alpha for probe in own if not math.isnan(probe.alpha)]
    return len(known) < _FEWEST or median(known) < options.too_small_alpha


def _direction(own: Sequence[OwnBatchProbe]) -> Iterator[Issue]:
    known = [probe for probe in own if math.isfinite(probe.slope)]
    uphill = [probe for probe in known if probe.slope > 0]
    if len(known) < _FEWEST or len(uphill) * 2 <= len(known):
        return
    share = len(uphill) / len(known)
    yield STEP_NOT_DESCENT.issue(
        f"{len(uphill)} of {len(known)} steps point uphill on their own batch, limit half.",
        step=uphill[0].step,
        phase="optimizer",
        share=Quantity(value=share, limit=0.5),
    )


def _jumped(jump: float, step: int, *, limit: float) -> Issue:
    by = f"by {jump:.0%} of the first loss" if math.isfinite(jump) else "beyond all numbers"
    return STEP_EARLY_JUMP.issue(
        f"Step {step} raised the loss of the next batch {by}, limit {limit:.0%}.",
        step=step,
        phase="optimizer",
        jump=Quantity(value=jump, limit=limit),
    )


def _later(following: Sequence[NextBatchProbe]) -> list[NextBatchProbe]:
    return [probe for probe in following if probe.step > EARLY_STEPS[-1]]


def _is_made_up_for(jump: float, following: Sequence[NextBatchProbe]) -> bool:
    """Whether the loss is far below its start by now: what it did at first was no harm."""
    later = _later(following)
    if len(later) < _FEWEST or jump > _BLOWN_UP:
        return False
    latest = [probe.before for probe in later[-max(3, len(later) // 3) :]]
    return all(map(math.isfinite, latest)) and median(latest) < _FALLEN * following[0].before


def _level(following: Sequence[NextBatchProbe]) -> float:
    """Return the loss of the latest third, in first losses."""
    latest = [probe.before for probe in following[-max(3, len(following) // 3) :]]
    first = following[0].before
    return median(latest) / first if first > 0 else math.inf


def _gets_nowhere(alpha: float, following: Sequence[NextBatchProbe]) -> bool:
    """Whether all steps so far would not make the way along one, and the loss shows it."""
    known = [probe for probe in following if probe.is_finite]
    bend = abs(sum(probe.curvature for probe in known))
    is_straight = bend <= 4 * sum(probe.resolution for probe in known)  # of three losses, rounded
    nowhere = is_straight or (1 + alpha) * (following[-1].step + 1) < 1
    return nowhere and _level(following) >= _FALLEN


def _early_jump(following: Sequence[NextBatchProbe]) -> tuple[float, int] | None:
    """Return the largest rise in the first steps, as a share of the first loss, and its step;
    ``None`` for one that is over."""
    first = following[0].before
    # a loss that was no number before the step is none of the step's doing
    early = [p for p in following if p.step <= EARLY_STEPS[-1] and math.isfinite(p.before)]
    if not early or not math.isfinite(first) or first <= 0:
        return None

    def rise(probe: NextBatchProbe) -> float:
        change = (probe.after - probe.before) / first
        return change if math.isfinite(change) else math.inf

    worst = max(early, key=rise)
    latest = early[-1]
    if rise(worst) <= _SOON_GONE and worst.step < latest.step and latest.before < first:
        return None  # made up for within the first steps
    return rise(worst), worst.step

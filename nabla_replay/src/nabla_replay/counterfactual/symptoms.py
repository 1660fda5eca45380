"""What went wrong in the executed steps, and whether it still does after a change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from .observing import MEASURES, Measure, Seen

__all__ = ["Judgement", "Outcome", "Symptom", "judged", "symptom_in", "usual_norm"]

Outcome = Literal["vanishes", "stays", "undecided"]

LEAST_RISE = 4.0
"""A number that rose by less tells too little to be compared."""

_GONE, _THERE = 0.25, 0.75
_HARDLY_LATER_STEPS = 2  # a batch that is skipped puts everything off by one
_BLOWN_UP = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """What the unchanged steps show.

    Attributes:
        measure: of which number.
        step: at which it was first not finite, or largest.
        usual: its median in the steps before the change; NaN where there is none.
        worst: its largest magnitude from there on; not finite when it was not.
        raised: the exception that ended the steps, if one did.
    """

    measure: Measure
    step: int
    usual: float
    worst: float
    raised: str = ""

    def __str__(self) -> str:
        if self.raised:
            return f"step {self.step} raises {self.raised}"
        if not math.isfinite(self.worst):
            return f"the {self.measure} is {self.worst:g} in step {self.step}"
        return (
            f"the {self.measure} rises to {self.worst:.3g} in step {self.step} "
            f"({self.usual:.3g} before)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of a symptom.

    Attributes:
        outcome: it vanishes, it stays, or that cannot be told.
        value: of the same measure after the change; its largest magnitude.
        reason: one clause, with the numbers.
    """

    outcome: Outcome
    value: float
    reason: str


def symptom_in(seen: Sequence[Seen], since: int) -> Symptom | None:
    """Return what goes wrong from a step on; ``None`` when nothing does.

    The first number that is not finite; else the measure that rose the most, and by a factor of at
    least four, over its median in the steps before.

    Args:
        seen: the executed steps.
        since: the step from which on a change acts.
    """
    for one in seen:
        if one.raised:
            return Symptom(
                measure="loss", step=one.step, usual=math.nan, worst=math.nan, raised=one.raised
            )
        for measure in MEASURES:
            value = one.values.get(measure, 0.0)
            if not math.isfinite(value):
                usual = _usual(seen, measure, since)
                return Symptom(measure=measure, step=one.step, usual=usual, worst=value)
    rises = [_rise(seen, measure, since) for measure in MEASURES]
    found = [rise for rise in rises if rise is not None and rise.worst > LEAST_RISE * rise.usual]
    return max(found, key=lambda rise: rise.worst / rise.usual) if found else None


def judged(symptom: Symptom, seen: Sequence[Seen], since: int) -> Judgement:
    """Return what became of a symptom in the changed steps.

    Args:
        symptom: of the unchanged steps.
        seen: the same steps, executed with the change.
        since: the step from which on the change acts.
    """
    broken = next((one for one in seen if one.raised or not one.finite), None)
    if broken is not None:
        return _still_broken(symptom, broken)
    late = [one for one in seen if one.step >= since and symptom.measure in one.values]
    if not late:
        return _undecided(f"no {symptom.measure} was seen in the changed steps")
    worst = max(abs(one.values[symptom.measure]) for one in late)
    if not math.isfinite(symptom.worst):
        return _after_non_finite(symptom, seen, since, worst)
    return _after_rise(symptom, worst)


def usual_norm(seen: Sequence[Seen], since: int) -> float | None:
    """Return the median of the gradient norm before a step; ``None`` when it was never seen."""
    usual = _usual(seen, "gradient norm", since)
    return usual if usual > 0.0 else None


def _usual(seen: Sequence[Seen], measure: Measure, since: int) -> float:
    before = [
        abs(one.values[measure]) for one in seen if one.step < since and measure in one.values
    ]
    finite = [value for value in before if math.isfinite(value)]
    return median(finite) if finite else math.nan


def _rise(seen: Sequence[Seen], measure: Measure, since: int) -> Symptom | None:
    usual = _usual(seen, measure, since)
    late = [one for one in seen if one.step >= since and measure in one.values]
    if not late or not usual > 0.0:
        return None
    worst = max(late, key=lambda one: abs(one.values[measure]))
    return Symptom(measure=measure, step=worst.step, usual=usual, worst=abs(worst.values[measure]))


def _still_broken(symptom: Symptom, broken: Seen) -> Judgement:
    odd = next((m for m in MEASURES if not math.isfinite(broken.values.get(m, 0.0))), None)
    value = math.nan if odd is None else broken.values[odd]
    what = f"raises {broken.raised}" if odd is None else f"has {odd} {value:g}"
    later = broken.step - symptom.step
    if later > _HARDLY_LATER_STEPS:
        reason = f"step {broken.step} {what}: it comes {later} steps later"
        return Judgement(outcome="undecided", value=value, reason=reason)
    return Judgement(outcome="stays", value=value, reason=f"step {broken.step} still {what}")


def _after_non_finite(
    symptom: Symptom, seen: Sequence[Seen], since: int, worst: float
) -> Judgement:
    """All numbers are finite now; they must not be on the way to where they were either."""
    last = max(one.step for one in seen)
    text = f"every number is finite up to step {last}, the largest {symptom.measure} is {worst:.3g}"
    for measure in MEASURES:
        rise = _rise(seen, measure, since)
        if rise is not None and rise.worst > _BLOWN_UP * rise.usual:
            reason = f"{text}, but {rise}"
            return Judgement(outcome="undecided", value=worst, reason=reason)
    return Judgement(outcome="vanishes", value=worst, reason=text)


def _after_rise(symptom: Symptom, worst: float) -> Judgement:
    """How much of the rise is left, in the logarithm."""
    whole = math.log(symptom.worst / symptom.usual)
    left = math.log(max(worst, symptom.usual) / symptom.usual) / whole
    text = (
        f"the largest {symptom.measure} is {worst:.3g} instead of {symptom.worst:.3g} "
        f"({symptom.usual:.3g} before)"
    )
    if left <= _GONE:
        return Judgement(outcome="vanishes", value=worst, reason=text)
    outcome: Outcome = "stays" if left >= _THERE else "undecided"
    return Judgement(outcome=outcome, value=worst, reason=text)


def _undecided(reason: str) -> Judgement:
    return Judgement(outcome="undecided", value=math.nan, reason=reason)

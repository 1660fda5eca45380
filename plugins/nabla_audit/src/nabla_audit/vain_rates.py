"""AUD308: a learning rate that is written where no optimizer reads it."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import LoopFacts
from nabla_guard.families.vain_rates import VainRate, VainRateWatch

from .places import where
from .rules.mode import RATE_WITHOUT_EFFECT

__all__ = ["VainRateDetector"]

_LOOKS = 2


class VainRateDetector:
    """Judges attributes that were seen to change while the rates in use did not."""

    rules = (RATE_WITHOUT_EFFECT,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(VainRateWatch)
        self._told: set[tuple[int, str]] = set()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what has differed twice."""
        found = []
        for key, rate in self._watch.rates.items():
            if rate.differing >= _LOOKS and key not in self._told:
                self._told.add(key)
                found.append(_issue(rate, record.step))
        return found


def _issue(rate: VainRate, step: int) -> Issue:
    written = ", ".join(f"{value:.3g}" for value in rate.values[-4:])
    used = ", ".join(f"{value:.3g}" for value in dict.fromkeys(rate.used))
    place = rate.optimizer.step_at or rate.optimizer.made_at
    return RATE_WITHOUT_EFFECT.issue(
        f"{rate.name} of {rate.optimizer.name} took the values {written}, which torch never reads: "
        f"the learning rate in use is still {used} (limit: the rate that was set).",
        step=step,
        where=where(place, rate.optimizer.name),
        phase="optimizer",
        written=Quantity(value=rate.values[-1], limit=rate.used[0] if rate.used else None),
    )

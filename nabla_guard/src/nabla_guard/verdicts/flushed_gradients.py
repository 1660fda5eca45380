"""NUM112 for gradients: most of them are too small for float16."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord

from ..facts import LoopFacts
from ..rules import UNDERFLOW
from ..shadow.small_gradients import GradientCounts, SmallGradientWatch

__all__ = ["FlushLimits", "FlushedGradientDetector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLimits:
    """Limits of NUM112.

    Attributes:
        subnormal_share: of the non-zero values.
        least_entries: non-zero values needed for a verdict.
        steps: looks in a row that must show it.
    """

    subnormal_share: float = 0.5
    least_entries: int = 32
    steps: int = 2


class FlushedGradientDetector:
    """Judges the counts of float16 gradients; each optimizer is reported once."""

    rules = (UNDERFLOW,)
    patient = True

    def __init__(self, facts: LoopFacts, limits: FlushLimits | None = None) -> None:
        self._facts = facts
        self._watch = facts.gather(SmallGradientWatch)
        self._limits = limits or FlushLimits()
        self._seen: dict[int, int] = {}

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed, if it was counted."""
        counts, optimizer = self._watch.latest, self._facts.stepping
        if counts is None or optimizer is None:
            return ()
        self._watch.latest = None
        limits = self._limits
        bad = (
            counts.nonzero >= limits.least_entries
            and counts.subnormal >= limits.subnormal_share * counts.nonzero
        )
        seen = self._seen[id(optimizer)] = self._seen.get(id(optimizer), 0) + 1 if bad else 0
        return (_issue(counts, limits, record.step),) if seen == limits.steps else ()


def _issue(counts: GradientCounts, limits: FlushLimits, step: int) -> Issue:
    share = counts.subnormal / counts.nonzero
    zero = 1.0 - counts.nonzero / counts.entries
    came = "came out of float16 operations" if counts.wide else "are float16"
    return UNDERFLOW.issue(
        f"{share:.0%} of the non-zero gradient values are below 6.1e-05 (limit "
        f"{limits.subnormal_share:.0%}), where float16 loses its digits, and {zero:.0%} are zero; "
        f"they {came} and the loss is not scaled.",
        step=step,
        where=Location(parameter=counts.parameter or None),
        phase="backward",
        subnormal_share=Quantity(value=share, limit=limits.subnormal_share),
        zero_share=Quantity(value=zero),
        entries=counts.entries,
    )

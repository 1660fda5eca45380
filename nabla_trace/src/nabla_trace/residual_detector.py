"""GEO101 in a live loop: an auxiliary loss moves the residual that it should only read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol, TypeVar, runtime_checkable

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session

from .live.residual_watch import Opposition, ResidualWatch
from .options import TraceOptions
from .rules.losses import LOSS_CONFLICT

__all__ = ["GathersFacts", "HasFacts", "ResidualDetector", "detectors_for"]

FamilyT = TypeVar("FamilyT")
_FEWEST = 6


class GathersFacts(Protocol):
    """Facts of a live loop that can be extended."""

    def gather(self, family: type[FamilyT]) -> FamilyT:
        """Return a family of facts that is gathered from now on."""


@runtime_checkable
class HasFacts(Protocol):
    """A source that is a live loop."""

    @property
    def facts(self) -> GathersFacts:
        """The facts of the loop."""


class ResidualDetector:
    """Judges once, when a pair of terms opposes each other in look after look."""

    rules = (LOSS_CONFLICT,)
    patient = True

    def __init__(self, watch: ResidualWatch, options: TraceOptions) -> None:
        self._watch, self._options = watch, options
        self._done = False

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge when there is something new."""
        if self._done or len(self._watch.found) < _FEWEST:
            return ()
        latest = self._watch.found[-_FEWEST:]
        if not all(map(self._opposes, latest)):
            return ()
        self._done = True
        return [self._issue(latest, record.step)]

    def finish(self) -> Iterable[Issue]:
        """Nothing is decided at the end only."""
        return ()

    def _opposes(self, found: Opposition) -> bool:
        if math.isnan(found.cosine) or found.ratio > self._options.conflict_ratio:
            return False
        return (
            found.cosine < self._options.conflict_cosine
            and found.cancellation > self._options.cancellation
        )

    def _issue(self, opposed: list[Opposition], step: int) -> Issue:
        middle = sorted(found.cosine for found in opposed)[len(opposed) // 2]
        limit = self._options.conflict_cosine
        return LOSS_CONFLICT.issue(
            f"A term of the loss reads the residual of another without detaching it: their "
            f"gradients had a median cosine of {middle:.2f}, limit {limit:.2f}, in the "
            f"latest {len(opposed)} looks, ten steps apart.",
            step=step,
            where=Location(op="loss terms"),
            phase="backward",
            cosine=Quantity(value=middle, limit=limit),
            cancellation=Quantity(value=opposed[-1].cancellation, limit=self._options.cancellation),
            shared_parameters=opposed[-1].leaves,
        )


def detectors_for(session: Session) -> list[ResidualDetector]:
    """Return the detector, if the source is a live loop and the rule is selected."""
    if not isinstance(session.source, HasFacts) or not session.selects(LOSS_CONFLICT):
        return []
    watch = session.source.facts.gather(ResidualWatch)
    return [ResidualDetector(watch, session.options(TraceOptions))]

"""AUD701 in one process: two optimizers whose models had the same bits and parted."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.replicas import ReplicaFacts, ReplicaWatch

from .rules.replicas import RANK_DIVERGENCE
from .streak import CONSECUTIVE

__all__ = ["ReplicaDetector", "judge_pair"]


class ReplicaDetector:
    """Judges each pair of replicas once, when they part."""

    rules = (RANK_DIVERGENCE,)

    def __init__(self, facts: LoopFacts) -> None:
        self._pairs = facts.gather(ReplicaWatch).pairs

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._pairs

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge pairs that have parted."""
        return self._judge() if self._pairs else ()

    def finish(self) -> Iterable[Issue]:
        """Judge pairs that parted at the last step."""
        return self._judge()

    def _judge(self) -> list[Issue]:
        parted = [pair for pair in self._pairs if pair.parted_at is not None]
        for pair in parted:
            self._pairs.remove(pair)
        return [issue for pair in parted for issue in judge_pair(pair)]


def judge_pair(pair: ReplicaFacts) -> Iterable[Issue]:
    """Yield an issue if the pair were replicas before they parted."""
    if pair.equal_steps < CONSECUTIVE or pair.parted_at is None:
        return
    rates = "" if pair.same_rates else ", with different learning rates"
    rates += ", after having been given the same data" if pair.same_data else ""
    yield RANK_DIVERGENCE.issue(
        f"Two models trained by {pair.first} and {pair.second} had the same bits after each of "
        f"{pair.equal_steps} steps and differ from step {pair.parted_at} on{rates}; first in "
        f"{pair.parameter or 'their number of parameters'}.",
        step=pair.parted_at,
        where=Location(op="replicas", parameter=pair.parameter or None),
        phase="optimizer",
        severity=Severity.HIGH if _are_replicas(pair) else Severity.INFO,
        equal_steps=Quantity(value=pair.equal_steps, unit="steps", limit=CONSECUTIVE),
        parted_at=pair.parted_at,
    )


def _are_replicas(pair: ReplicaFacts) -> bool:
    """Replicas share their gradients, not their data; equal models with equal data and settings
    are two arms of an experiment."""
    return pair.same_rates and not pair.same_data

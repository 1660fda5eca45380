"""AUD701 to 704 between the ranks of a distributed run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nabla_core.issue import Evidence, Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.rule import Rule
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.ranks import RankFacts, RankStep, RankWatch

from .options import AuditOptions
from .rules.replicas import (
    RANK_BUFFER_DRIFT,
    RANK_DIVERGENCE,
    RANK_SCALE_DRIFT,
    RANKS_SEE_SAME_DATA,
)
from .streak import CONSECUTIVE

__all__ = ["PeerJudge", "RankDetector"]

_SCALES = 2


class RankDetector:
    """Judges what the ranks have posted, as it arrives."""

    rules = (RANK_DIVERGENCE, RANK_BUFFER_DRIFT, RANK_SCALE_DRIFT, RANKS_SEE_SAME_DATA)

    def __init__(self, facts: LoopFacts, options: AuditOptions) -> None:
        self._watch = facts.gather(RankWatch)
        self._watch.with_buffers = options.synchronised_buffers
        self._peers: dict[int, PeerJudge] = {}

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not self._watch.facts.pairs

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what arrived since the last step."""
        return list(self._judge()) if self._watch.facts.pairs else ()

    def finish(self) -> Iterable[Issue]:
        """Judge what arrived after the last step."""
        return list(self._judge())

    def _judge(self) -> Iterator[Issue]:
        facts = self._watch.facts
        for other, pairs in facts.pairs.items():
            judge = self._peers.setdefault(other, PeerJudge(other))
            taken = pairs[:]
            pairs.clear()
            for step, mine, theirs in taken:
                yield from judge.judge(facts, step, mine, theirs)
        if self._peers and all(judge.parted for judge in self._peers.values()):
            self._watch.active = False


@dataclass(slots=True)
class PeerJudge:
    """Judges this rank against another one, step by step.

    Attributes:
        other: the other rank.
        equal: steps in a row with equal parameters.
        parted: whether the parameters have differed after having been equal.
    """

    other: int
    equal: int = 0
    parted: bool = False
    drifted: bool = False
    scales: int = 0
    same_data: int = 0
    last_batch: int = 0

    def judge(
        self, facts: RankFacts, step: int, mine: RankStep, theirs: RankStep
    ) -> Iterator[Issue]:
        """Yield the issues of one step of which both sides are known."""
        if self.parted or len(mine.parameters) != len(theirs.parameters):
            return
        if mine.parameters == theirs.parameters:
            self.equal += 1
        elif self.equal >= CONSECUTIVE or facts.parallel:
            self.parted = True
            yield self._divergence(facts, step, mine, theirs)
            return
        else:
            self.equal = 0
            return
        yield from self._buffers(facts, step, mine, theirs)
        yield from self._scale(facts, step, mine, theirs)
        yield from self._data(facts, step, mine, theirs)

    def _divergence(self, facts: RankFacts, step: int, mine: RankStep, theirs: RankStep) -> Issue:
        names = _differing(facts.parameters, mine.parameters, theirs.parameters)
        return self._issue(
            RANK_DIVERGENCE,
            f"{len(names)} of {len(mine.parameters)} parameters, first {names[0]}, differ between "
            f"rank {facts.rank} and rank {self.other} from step {step} on, after {self.equal} "
            "equal steps.",
            step,
            names[0],
            parameters=Quantity(value=len(names), unit="parameters", limit=0),
            equal_steps=self.equal,
        )

    def _buffers(
        self, facts: RankFacts, step: int, mine: RankStep, theirs: RankStep
    ) -> Iterator[Issue]:
        if self.drifted or mine.buffers == theirs.buffers or not mine.buffers:
            return
        names = _differing(facts.buffers, mine.buffers, theirs.buffers)
        self.drifted = True
        yield self._issue(
            RANK_BUFFER_DRIFT,
            f"{len(names)} of {len(mine.buffers)} buffers, first {names[0]}, differ between rank "
            f"{facts.rank} and rank {self.other} at step {step}, although buffers are declared "
            "synchronised.",
            step,
            names[0],
            buffers=Quantity(value=len(names), unit="buffers", limit=0),
        )

    def _scale(
        self, facts: RankFacts, step: int, mine: RankStep, theirs: RankStep
    ) -> Iterator[Issue]:
        self.scales = self.scales + 1 if mine.scale != theirs.scale else 0
        if self.scales == _SCALES:
            yield self._issue(
                RANK_SCALE_DRIFT,
                f"The loss scale is {mine.scale:g} on rank {facts.rank} and {theirs.scale:g} on "
                f"rank {self.other} since step {step - _SCALES + 1}.",
                step,
                None,
                scale=Quantity(value=mine.scale, limit=theirs.scale),
            )

    def _data(
        self, facts: RankFacts, step: int, mine: RankStep, theirs: RankStep
    ) -> Iterator[Issue]:
        new = mine.batch != self.last_batch
        self.last_batch = mine.batch
        replicas = bool(mine.parameters)  # shards of one model see the same data on purpose
        same = replicas and bool(mine.batch) and mine.batch == theirs.batch
        self.same_data = self.same_data + new if same else 0
        if same and new and self.same_data == CONSECUTIVE:
            yield self._issue(
                RANKS_SEE_SAME_DATA,
                f"Rank {facts.rank} and rank {self.other} trained on equal inputs in "
                f"{CONSECUTIVE} different batches up to step {step}.",
                step,
                None,
                severity=Severity.HIGH if facts.parallel else Severity.MEDIUM,
                equal_batches=Quantity(value=CONSECUTIVE, unit="batches", limit=CONSECUTIVE),
            )

    def _issue(
        self,
        rule: Rule,
        message: str,
        step: int,
        parameter: str | None,
        *,
        severity: Severity = Severity.HIGH,
        **evidence: Evidence,
    ) -> Issue:
        issue = rule.issue(
            message,
            step=step,
            where=Location(rank=self.other, parameter=parameter),
            phase="data" if rule is RANKS_SEE_SAME_DATA else "optimizer",
            severity=severity,
        )
        return replace(issue, evidence=evidence)


def _differing(names: tuple[str, ...], mine: tuple[int, ...], theirs: tuple[int, ...]) -> list[str]:
    return [name or "?" for name, one, two in zip(names, mine, theirs, strict=False) if one != two]

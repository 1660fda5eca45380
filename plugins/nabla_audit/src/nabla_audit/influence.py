"""AUD406 and AUD407: outputs that depend on other samples, or on later positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.influence import InfluenceFacts, InfluenceWatch

from .options import AuditOptions
from .rules.loss import FUTURE_LEAK, SAMPLES_COUPLED

__all__ = ["InfluenceDetector"]


class InfluenceDetector:
    """Judges what the oracle has measured, once."""

    rules = (SAMPLES_COUPLED, FUTURE_LEAK)
    patient = True

    def __init__(self, facts: LoopFacts, options: AuditOptions, session: Session) -> None:
        self._watch = facts.gather(InfluenceWatch)
        self._watch.wanted = options.oracles
        self._watch.causal = frozenset(options.causal)
        self._options = options
        self._session = session
        self._done = False

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge when the measurement is there."""
        if self._done or self._watch.facts is None:
            return ()
        self._done = True
        return list(self._judge(self._watch.facts, record.step))

    def finish(self) -> Iterable[Issue]:
        """Judge a run that ended right after the measurement, or say that there was none."""
        if self._done:
            return
        facts = self._watch.facts
        if facts is not None:
            yield from self._judge(facts, None)
        else:
            off = "switched off" if not self._options.oracles else "made after the third step"
            for rule in self.rules:
                self._session.undecide(rule, f"the measurement is {off}")

    def _judge(self, facts: InfluenceFacts, step: int | None) -> Iterator[Issue]:
        nothing = facts.why_not or "the layout of the output is not known"
        if facts.coupled is None:
            self._session.undecide(SAMPLES_COUPLED, nothing)
        elif facts.coupled:
            yield self._coupled(facts, step)
        if facts.leaking is None:
            reason = nothing if facts.causal or facts.why_not else "nothing declares it causal"
            self._session.undecide(FUTURE_LEAK, reason)
        elif facts.copied:
            if facts.recalls and not facts.leaking:
                yield _copied(facts, step)
        elif facts.leaking:
            yield _leak(facts, step)

    def _coupled(self, facts: InfluenceFacts, step: int | None) -> Issue:
        severity = Severity.INFO if facts.lawful else Severity.MEDIUM
        if self._options.independent_samples:
            severity = Severity.HIGH
        tail = f" ({facts.lawful}: it may be meant)" if facts.lawful else ""
        return SAMPLES_COUPLED.issue(
            f"In evaluation mode the output of {facts.module} for one sample depends on "
            f"{facts.coupled} of the {facts.batch - 1} others, by {facts.coupling:.2g} times its "
            f"dependence on itself (limit 0){tail}.",
            step=step,
            where=Location(module=facts.module),
            phase="forward",
            severity=severity,
            coupled_samples=Quantity(value=facts.coupled or 0, unit="samples", limit=0),
            coupling=Quantity(value=facts.coupling, limit=0.0),
            elapsed_s=Quantity(value=facts.elapsed_s, unit="s"),
        )


def _leak(facts: InfluenceFacts, step: int | None) -> Issue:
    return FUTURE_LEAK.issue(
        f"The output of {facts.module} at position {facts.position} depends on "
        f"{facts.leaking} later positions, by {facts.leak:.2g} times its dependence on earlier "
        "ones (limit 1e-06), and it is trained to predict the next one.",
        step=step,
        where=Location(module=facts.module),
        phase="forward",
        leaking_positions=Quantity(value=facts.leaking or 0, unit="positions", limit=0),
        leak=Quantity(value=facts.leak, limit=1e-6),
        elapsed_s=Quantity(value=facts.elapsed_s, unit="s"),
    )


def _copied(facts: InfluenceFacts, step: int | None) -> Issue:
    return FUTURE_LEAK.issue(
        f"The targets of {facts.module} are its own input, position by position, and its output at "
        f"position {facts.position} depends on earlier positions and on {facts.leaking} later ones "
        "(limit 0): it is given what it is to predict; targets of a causal model are shifted by "
        "one.",
        step=step,
        where=Location(module=facts.module),
        phase="loss",
        severity=Severity.MEDIUM,
        leaking_positions=Quantity(value=facts.leaking or 0, unit="positions", limit=0),
        elapsed_s=Quantity(value=facts.elapsed_s, unit="s"),
    )

"""Holds one run to one contract."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from nabla_core.allowance import reason_to_allow
from nabla_core.issue import Issue, Location
from nabla_core.records import StepRecord

from .judgement import Judge, Judgement
from .rules import CONTRACT_NOT_EVALUATED
from .view import InputAbsent, NoFacts, StepFacts, StepView, TooEarly
from .violation import ContractViolation

if TYPE_CHECKING:
    from nabla_core.session import Session

    from .changes import ChangeKeeper
    from .declaration import Contract
    from .gate import StepGate
    from .live_facts import LiveFacts

__all__ = ["ContractDetector"]


class _Course:
    """The steps of one optimizer under one contract."""

    __slots__ = ("broken", "judge")

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.broken = 0


class ContractDetector:
    """Judges the steps of a session by one contract.

    Attributes:
        rules: that of the contract, and the one which says what could not be judged.
        patient: see :class:`nabla_core.detector.Detector`.
        violation: the first breach that is to end the run, for sources without an optimizer.

    Args:
        contract: what must hold.
        session: connected to its source.
        raise_on_failure: for a contract that does not say it itself.
    """

    def __init__(self, contract: Contract, session: Session, raise_on_failure: bool) -> None:
        self.rules = (contract.rule, CONTRACT_NOT_EVALUATED)
        self.patient = contract.only_unusual
        self.violation: ContractViolation | None = None
        self._contract = contract
        self._session = session
        own = contract.terms.raise_on_failure
        self._raises = raise_on_failure if own is None else own
        # by the facts of the optimizer, which are kept alive here: an id would be used again
        self._courses: dict[object, _Course] = {}
        self._evaluated = 0
        self._steps = 0
        self._absent: Counter[str] = Counter()
        self._early = ""
        self._live = _live_facts(session)
        self._facts: StepFacts = self._live or NoFacts()
        self._gate: StepGate | None = None
        self._changes: ChangeKeeper | None = None
        if self._live is not None and (self._raises or contract.after_step):
            self._connect(self._live)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the boundary of a step; what needs the change is judged when the step is over."""
        if self._changes is not None:
            self._changes.signals = record.signals
            return ()
        if record.step % self._contract.terms.every:
            return ()
        live = self._live
        if live is None:
            return self.judge(StepView(record.step, record.signals, self._facts))
        signals = live.boundary(record.signals)
        return () if signals is None else self.judge(StepView(record.step, signals, live))

    def look_at(self, facts: StepFacts) -> None:
        """Take tensors from ``facts``; for a source that is no live loop."""
        self._facts = facts

    def judge(self, view: StepView) -> list[Issue]:
        """Look at one step; return the breach, if it is one too many."""
        self._steps += 1
        stepping = None if self._live is None else self._live.stepping
        course = self._courses.get(stepping)
        if course is None:
            course = self._courses[stepping] = _Course(self._contract.begin())
        try:
            if self._contract.needs:
                view.require(self._contract.needs)
            judgement = course.judge(view)
        except TooEarly as error:
            self._early = str(error)
            return []
        except InputAbsent as error:
            self.absent(str(error))
            return []
        self._evaluated += 1
        if judgement is None:
            course.broken = 0
            return []
        course.broken += 1
        if course.broken < self._contract.terms.consecutive:
            return []
        return [self._breach(judgement, view.step, course.broken)]

    def absent(self, reason: str) -> None:
        """Note that the contract could not be judged in a step."""
        self._absent[reason] += 1

    def finish(self) -> Iterable[Issue]:
        """Say what was not judged."""
        reason = self._reason()
        if not reason:
            return
        missing = self._absent.total()
        share = f"in {missing} of {self._steps} steps" if self._evaluated else "in no step"
        verb = "could not be judged" if self._evaluated else "was judged"
        yield CONTRACT_NOT_EVALUATED.issue(
            f"Contract {self._contract.name!r} {verb} {share}: {reason}.",
            where=self._where,
            contract=self._contract.name,
            contract_rule=self._contract.rule.id,
            steps_judged=self._evaluated,
            steps_not_judged=missing,
        )

    def obey(self) -> None:
        """Raise the first breach that is to end the run.

        Raises:
            ContractViolation: there was one.
        """
        violation, self.violation = self.violation, None
        if violation is not None:
            raise violation

    # ------------------------------------------------------------------ private
    @property
    def _where(self) -> Location:
        return Location(function=f"contract {self._contract.name}")

    def _connect(self, live: LiveFacts) -> None:
        from .changes import ChangeKeeper
        from .gate import StepGate

        self._gate = live.loop.facts.gather(StepGate)
        if self._contract.after_step:
            self._changes = ChangeKeeper(self._contract, live, self)
            self._gate.hear(self._changes)

    def report(self, issues: Iterable[Issue]) -> None:
        """Hand in what was found outside the round of detectors: after a step."""
        for issue in issues:
            self._session.add(issue)

    def _reason(self) -> str:
        if self._absent:
            return self._absent.most_common(1)[0][0]
        if self._evaluated:
            return ""
        return self._early or "no step was looked at"

    def _breach(self, judgement: Judgement, step: int, in_a_row: int) -> Issue:
        terms = self._contract.terms
        row = f", in {in_a_row} steps in a row" if terms.consecutive > 1 else ""
        issue = self._contract.rule.issue(
            f"Contract {self._contract.name!r} is broken{row}: {judgement.message}.",
            step=step,
            where=self._where,
            phase=judgement.phase,
            severity=terms.severity,
        )
        evidence = {"contract": self._contract.name, **judgement.evidence}
        issue = replace(issue, evidence=evidence)
        if self._raises and self._counts(issue):
            self._stop(ContractViolation(issue))
        return issue

    def _counts(self, issue: Issue) -> bool:
        """Whether a breach is neither unselected nor allowed."""
        session = self._session
        if session.selection.apply(issue) is None:
            return False
        allowed = reason_to_allow(issue, session.host.registry)
        return allowed is None and session.config.baseline_reason(issue) is None

    def _stop(self, violation: ContractViolation) -> None:
        if self._gate is not None:
            self._gate.raise_soon(violation)
        else:
            self.violation = self.violation or violation


def _live_facts(session: Session) -> LiveFacts | None:
    """Return the facts of a live loop; ``None`` for a log, which needs no torch."""
    if "torch" not in sys.modules or not hasattr(session.source, "facts"):
        return None
    from nabla_guard.loop.live import LiveLoop

    from .live_facts import LiveFacts

    return LiveFacts(session.source) if isinstance(session.source, LiveLoop) else None

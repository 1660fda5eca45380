"""AUD101 and AUD102: the order of backward, clearing and step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_guard.facts import Call, LoopFacts, OptimizerFacts
from nabla_guard.families.values import ValueWatch

from .ledger import Ledger
from .places import where
from .rules.protocol import GRADIENTS_NOT_CLEARED, STEP_WITHOUT_GRADIENT
from .streak import CONSECUTIVE, Streaks

__all__ = ["ProtocolDetector"]


class ProtocolDetector:
    """Judges the calls between two steps of each optimizer."""

    rules = (STEP_WITHOUT_GRADIENT, GRADIENTS_NOT_CLEARED)
    patient = True

    def __init__(self, facts: LoopFacts, session: Session | None = None) -> None:
        self._facts = facts
        self._values = facts.gather(ValueWatch)
        self._ledger = Ledger(session)
        self._empty = Streaks()
        self._carried = Streaks()
        self._texts: dict[tuple[str, int], tuple[OptimizerFacts, str, int]] = {}

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None:
            return ()
        empty = _cleared_before_step(optimizer)
        if not empty and not optimizer.carried and not optimizer.pending:
            self._empty.count(id(optimizer), False, record.step)
            self._carried.count(id(optimizer), False, record.step)
            return ()
        optimizer.pending = empty or optimizer.carried
        return list(self._judge(optimizer, empty, record.step))

    def _judge(self, optimizer: OptimizerFacts, empty: bool, step: int) -> Iterator[Issue]:
        key = id(optimizer)
        if empty:
            self._ledger.held(("empty", key), step)
            self._values.keep(optimizer)
        if optimizer.carried:
            self._ledger.held(("carried", key), step)
        length = self._empty.count(key, empty, step)
        if length == CONSECUTIVE and (not optimizer.closure or self._changed_nothing(optimizer)):
            text = _empty_text(optimizer)
            self._texts["empty", key] = (optimizer, text, self._empty.since(key))
            issue = _empty_issue(optimizer, text, self._empty.since(key), step)
            yield self._ledger.made(("empty", key), issue)
        if self._carried.count(key, optimizer.carried, step) == CONSECUTIVE:
            text = _carried_text(optimizer)
            self._texts["carried", key] = (optimizer, text, self._carried.since(key))
            issue = _carried_issue(optimizer, text, self._carried.since(key), step)
            yield self._ledger.made(("carried", key), issue)

    def _changed_nothing(self, optimizer: OptimizerFacts) -> bool:
        """What a closure's gradients were used for is over when they are looked at."""
        identical = self._values.identical(optimizer)
        return identical is not None and identical[0] == identical[1] > 0

    def finish(self) -> Iterable[Issue]:
        """Say in how many steps of the whole run the pattern held, and what became of it."""
        for (kind, key), (optimizer, text, since) in self._texts.items():
            times = self._ledger.times((kind, key))
            message = f"In {times} of {optimizer.steps} steps, since step {since}, {text}"
            identical = self._values.identical(optimizer) if kind == "empty" else None
            if identical is not None and identical[0]:
                same, known, steps_seen = identical
                message = (
                    f"{message[:-1]}: {same} of {known} parameters are bit-identical after "
                    f"{steps_seen} steps."
                )
            steps = Quantity(value=times, unit="steps", limit=CONSECUTIVE)
            self._ledger.rewrite((kind, key), message, steps=steps)
        return ()


def _cleared_before_step(optimizer: OptimizerFacts) -> bool:
    """Whether a backward wrote gradients, the last thing that happened to them was a clear, and
    nothing is left for the step. A clear by hand counts only if what it cleared was not zero."""
    if optimizer.gradient not in ("none", "zero"):
        return False
    own = [call for call in optimizer.calls if call.kind != "foreign-step"]
    if not own or own[-1].kind != "clear":
        return False
    writes = [call for call in own if call.kind == "write" and call.backward]
    if not writes:
        return False
    return not own[-1].by_hand or optimizer.gradient == "none" or writes[-1].nonzero is True


def _last(calls: list[Call], kind: str) -> Call | None:
    return next((call for call in reversed(calls) if call.kind == kind), None)


def _empty_text(optimizer: OptimizerFacts) -> str:
    clear = _last(optimizer.calls, "clear")
    write = _last(optimizer.calls, "write")
    place = clear.place if clear is not None else None
    backward = f" at {write.place}" if write is not None and write.place is not None else ""
    called = f" at {optimizer.step_at}" if optimizer.step_at is not None else ""
    how = f"cleared at {place}" if place is not None else "cleared by hand"
    count = clear.parameters if clear is not None else len(optimizer.parameters)
    before = "still inside the closure of" if optimizer.closure else "before"
    return (
        f"the gradients of {count} parameters were {how}, after backward{backward} and {before} "
        f"{optimizer.name}.step{called}, so the step had nothing to apply."
    )


def _empty_issue(optimizer: OptimizerFacts, text: str, since: int, step: int) -> Issue:
    clear = _last(optimizer.calls, "clear")
    shown = (clear.place if clear is not None else None) or optimizer.step_at
    return STEP_WITHOUT_GRADIENT.issue(
        f"In {CONSECUTIVE} of {CONSECUTIVE} steps since step {since} {text}",
        step=step,
        where=where(shown, optimizer.name),
        phase="loop",
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        since_step=since,
        parameters=clear.parameters if clear is not None else len(optimizer.parameters),
        gradients=optimizer.gradient,
    )


def _carried_text(optimizer: OptimizerFacts) -> str:
    called = f" at {optimizer.step_at}" if optimizer.step_at is not None else ""
    never = "was never called" if not optimizer.ever_cleared else "is no longer called"
    count = sum(facts.writes > 0 for facts in optimizer.parameters)
    return (
        f"backward added to the gradients that the previous {optimizer.name}.step{called} had "
        f"already used: zero_grad {never} for these {count} parameters."
    )


def _carried_issue(optimizer: OptimizerFacts, text: str, since: int, step: int) -> Issue:
    shown = optimizer.step_at
    return GRADIENTS_NOT_CLEARED.issue(
        f"In {CONSECUTIVE} steps in a row since step {since} {text}",
        step=step,
        where=where(shown, optimizer.name),
        phase="loop",
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        since_step=since,
        parameters=sum(facts.writes > 0 for facts in optimizer.parameters),
    )

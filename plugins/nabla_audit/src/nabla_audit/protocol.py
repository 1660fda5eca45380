"""AUD101 and AUD102: the order of backward, clearing and step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import Call, LoopFacts, OptimizerFacts

from .rules.protocol import GRADIENTS_NOT_CLEARED, STEP_WITHOUT_GRADIENT
from .streak import CONSECUTIVE, Streaks

__all__ = ["ProtocolDetector"]


class ProtocolDetector:
    """Judges the calls between two steps of each optimizer."""

    rules = (STEP_WITHOUT_GRADIENT, GRADIENTS_NOT_CLEARED)

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._empty = Streaks()
        self._carried = Streaks()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None or optimizer.closure:
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
        if self._empty.count(key, empty, step) == CONSECUTIVE:
            yield _empty_issue(optimizer, self._empty.since(key), step)
        if self._carried.count(key, optimizer.carried, step) == CONSECUTIVE:
            yield _carried_issue(optimizer, self._carried.since(key), step)


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


def _empty_issue(optimizer: OptimizerFacts, since: int, step: int) -> Issue:
    clear = _last(optimizer.calls, "clear")
    write = _last(optimizer.calls, "write")
    place = clear.place if clear is not None else None
    backward = f" at {write.place}" if write is not None and write.place is not None else ""
    called = f" at {optimizer.step_at}" if optimizer.step_at is not None else ""
    how = f"cleared at {place}" if place is not None else "cleared by hand"
    count = clear.parameters if clear is not None else len(optimizer.parameters)
    shown = place or optimizer.step_at
    return STEP_WITHOUT_GRADIENT.issue(
        f"In {CONSECUTIVE} of {CONSECUTIVE} steps since step {since} the gradients of {count} "
        f"parameters were {how}, after backward{backward} and before "
        f"{optimizer.name}.step{called}, "
        "so the step had nothing to apply.",
        step=step,
        where=shown.location() if shown is not None else Location(op=optimizer.name),
        phase="loop",
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        since_step=since,
        parameters=count,
        gradients=optimizer.gradient,
    )


def _carried_issue(optimizer: OptimizerFacts, since: int, step: int) -> Issue:
    shown = optimizer.step_at
    called = f" at {shown}" if shown is not None else ""
    never = "was never called" if not optimizer.ever_cleared else "is no longer called"
    count = sum(facts.writes > 0 for facts in optimizer.parameters)
    return GRADIENTS_NOT_CLEARED.issue(
        f"In {CONSECUTIVE} steps in a row since step {since} backward added to the gradients that "
        f"the "
        f"previous {optimizer.name}.step{called} had already used: zero_grad {never} for these "
        f"{count} parameters.",
        step=step,
        where=shown.location() if shown is not None else Location(op=optimizer.name),
        phase="loop",
        consecutive_steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
        since_step=since,
        parameters=count,
    )

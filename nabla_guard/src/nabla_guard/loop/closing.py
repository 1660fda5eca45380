"""Closes a step of a watched loop: one read, the facts that follow from it, and its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from nabla_core.records import StepRecord

from ..facts import Call, NumberFacts
from ..taps.place import user_place
from ..taps.scaler import was_skipped
from .evidence import gather
from .reading import StepReading, rates_of, take

if TYPE_CHECKING:
    from .book import OptimizerRecord
    from .gradients import GradientRecord
    from .live import LiveLoop

__all__ = ["Closing"]

_EARLY_STEPS = 3


class Closing:
    """What a loop does when an optimizer is about to step (with a closure: has stepped).

    Args:
        loop: the loop that is watched.
    """

    def __init__(self, loop: LiveLoop) -> None:
        self._loop = loop
        self._touched: list[GradientRecord] = []

    def look(self) -> None:
        """Notice what was done to gradients by hand since the last look."""
        looks = self._loop.gradients.look()
        if looks.gone:
            self._loop.book.note_clears(looks.gone, by_hand=True)
        if looks.assigned:
            call = Call(kind="write", place=None, nonzero=None)
            self._loop.book.note_assignments(looks.assigned, call)
        self._touched = [found for found in looks.touched if found.wrote]

    def close(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Measure and judge a step, before the optimizer can act on what is not finite."""
        if not record.judged:
            return
        loop = self._loop
        if record.curious:
            record.facts.step_at = user_place()
        reading = self._read(record)
        record.facts.rates = rates_of(optimizer)
        self._update_facts(record, reading)
        loop.numbers = self._numbers_of(record, optimizer, reading)
        if loop.numbers is None:
            record.finite = True
            loop.explainer.rest(record)
        loop.watches.step_started(record, optimizer)
        loop.session.calm = loop.calm.on
        self.note(reading.signals(optimizer))
        if loop.numbers is not None:
            record.finite = not loop.numbers.gradients
            if not reading.finite or loop.numbers is loop.pending.numbers:
                loop.policy.act(record, self._verdict(), loop.index)

    def look_inside(self, record: OptimizerRecord) -> None:
        """Look at one evaluation of a closure, while its parameters are those it was made with."""
        pending = self._loop.pending
        reading = take(record, pending.traffic)
        if not reading.finite:
            again = self._loop.explainer.again
            pending.numbers = gather(record, reading, pending.traffic, again)

    def note(self, signals: Mapping[str, float]) -> None:
        """Give the session the record of the step that is being closed."""
        loop, session = self._loop, self._loop.session
        wanted = "layers" in loop.wanted
        session.step(
            StepRecord(
                step=loop.index,
                time_s=session.clock() - session.started_s,
                signals=signals,
                layers=loop.layers.ranges if wanted else {},
                layout=loop.layers.layout if wanted else (),
            )
        )

    # ------------------------------------------------------------------ private
    def _read(self, record: OptimizerRecord) -> StepReading:
        loop = self._loop
        if loop.due:
            loop.layers.send()  # before the read that waits for it
        reading = take(record, loop.pending.traffic, loop.due)
        if loop.due:
            loop.layers.receive()
        return reading

    def _numbers_of(
        self, record: OptimizerRecord, optimizer: Optimizer, reading: StepReading
    ) -> NumberFacts | None:
        """What is not finite in a step, exactly; ``None`` when nothing is, or it is skipped."""
        loop = self._loop
        traffic = loop.pending.traffic
        if loop.pending.numbers is not None:
            record.finite = False
            return loop.pending.numbers
        odd = loop.layers.receive() if loop.due else ()
        if reading.finite and not odd:
            if reading.complete and record.facts.steps < _EARLY_STEPS:
                traffic.learn(reading.outputs)
            return None
        if was_skipped(optimizer):
            return None
        if reading.finite:
            return loop.layers.explain(odd, record, reading, loop.explainer.again)
        return gather(record, reading, traffic, loop.explainer.again)

    def _verdict(self) -> str:
        issues = [issue for issue in self._loop.session.issues if issue.rule.startswith("NUM")]
        return issues[-1].message if issues else "loss or gradients are not finite"

    def _update_facts(self, record: OptimizerRecord, reading: StepReading) -> None:
        loop = self._loop
        facts = record.facts
        facts.gradient = reading.gradient_state(record)
        if loop.due:
            loop.calm.judge(record, reading.finite)
        if loop.attentive or facts.gradient != "nonzero":
            self.look()
        if facts.gradient == "zero" and self._touched and not facts.closure:
            zeroed = [found for found in self._touched if facts in found.facts.optimizers]
            if zeroed:
                record.mark_zeroed(zeroed)
        group = loop.gradients.groups.get(id(record))
        looked_at = record.records if group is None else (group.leader,)
        written = [found for found in looked_at if found.wrote]
        carried = bool(written) and all(found.carried for found in written)
        facts.carried = carried and loop.attentive
        unsure = carried or (facts.gradient == "zero" and bool(self._touched))
        record.alert = unsure and not loop.attentive  # gradients may have been touched unseen
        loop.stepping = facts

"""Bad backward passes that no step of an optimizer followed, although there is an optimizer.

A loop that is left between a backward pass and its step (by ``break``, an exception, or the end of
the script) is judged when watching ends, and so is one that is left between a loss and its backward
pass. A loop that makes an optimizer and never steps it is judged pass by pass: its weights are
changed by hand, and what is bad first is lost by then. Once any optimizer has stepped, each step is
judged where it is closed, and passes are let go by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..facts import NumberFacts
from ..origin.awaited import awaits, passes_over
from ..origin.decide import blamed
from ..taps.instrument import INSTRUMENT
from ..taps.patching import Patches
from .evidence import gather, parameters_left_behind
from .lone_passes import LonePass, LonePasses
from .reading import take
from .signals import total_norm
from .watch import Watch

if TYPE_CHECKING:
    from .book import OptimizerRecord
    from .gradients import GradientRecord
    from .live import LiveLoop

__all__ = ["OpenPasses"]


class OpenPasses(Watch):
    """Finds the first bad pass that was left open.

    Attributes:
        found: what a detector has not judged yet; filled when watching ends.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.found: list[LonePass] = []
        self._lone = loop.watches.gather(LonePasses)
        self._passes = 0
        self._first: LonePass | None = None

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        self._lone.followed = None if self._has_stepped() else self._followed

    def _followed(self, written: Sequence[GradientRecord]) -> None:
        """Judge a pass as long as no optimizer has stepped."""
        if self._has_stepped():
            self._lone.followed = self._first = None
            return
        if self.loop.pending.record is not None:
            return  # an evaluation inside a step is looked at there
        index, self._passes = self._passes, self._passes + 1
        if self._first is None and not self._lone.is_scaled:
            held = {id(facts) for found in written for facts in found.facts.optimizers}
            owners = (record for record in self.loop.book if id(record.facts) in held)
            record = next(owners, None)
            if record is not None and record.judged:
                self._first = self._judged(record, index)

    def stop(self) -> None:
        """Judge what was left open."""
        first, self._first, self._lone.followed = self._first, None, None
        if first is None or self._has_stepped():
            first = INSTRUMENT.keeper.unnoted(self._left_open)
        if first is not None:
            self.found.append(first)

    def _has_stepped(self) -> bool:
        return any(record.facts.steps for record in self.loop.book)

    def _left_open(self) -> LonePass | None:
        calm = self.loop.calm
        if calm.quick is not None:
            calm.quick.note_calls()
        waiting = [record for record in self.loop.book if self._waits(record)]
        if waiting:
            calm.interrupt()  # brings the losses of the open step up to date
        for record in sorted(waiting, key=lambda known: known.index):  # whose turn it is
            found = self._judged(record, max(record.index + 1, self.loop.index))
            if found is not None:
                return found
        return self._never_differentiated()

    def _never_differentiated(self) -> LonePass | None:
        """Judge the loss that the loop looked at before it was left, ahead of its backward pass."""
        keeper, loop = INSTRUMENT.keeper, self.loop
        if not keeper.enabled or self._lone.is_scaled or not keeper.kept.noted:
            return None
        records = [record for record in loop.book if record.judged and _is_alive(record)]
        if not records or not awaits(keeper.kept.tape):
            return None
        record = min(records, key=lambda known: known.index)
        traffic, reading = loop.pending.traffic, take(record, loop.pending.traffic)
        if parameters_left_behind(record) is not None:
            return None  # what the last step left in the weights is judged by itself
        findings = loop.explainer.again(record, "loss")
        usual = traffic.usual_inputs()
        if findings is None or findings.loss is None or blamed(findings, usual) is None:
            return None
        numbers = NumberFacts(
            optimizer=record.facts,
            param_norm=total_norm(reading.parameters),
            findings=findings,
            usual=usual,
        )
        step, handled = max(record.index + 1, loop.index), passes_over(keeper.kept.tape)
        return LonePass(step=step, numbers=numbers, recovered=handled)

    def _waits(self, record: OptimizerRecord) -> bool:
        """Whether gradients were written last, and neither a step nor a scaler dealt with them.

        Where another optimizer has stepped since, the pass was meant for that one.
        """
        calls = record.facts.calls
        if not record.judged or not calls or calls[-1].kind != "write":
            return False
        passes = max(call.backward for call in calls if call.kind == "write")
        return passes > self._lone.skipped_at and any(map(_has_gradient, record.records))

    def _judged(self, record: OptimizerRecord, step: int) -> LonePass | None:
        reading = take(record, self.loop.pending.traffic)
        if reading.finite or not reading.complete:
            return None
        if self._lone.is_scaled and all(map(math.isfinite, reading.losses)):
            return None  # a smaller scale would have repaired it
        numbers = gather(record, reading, self.loop.pending.traffic, self.loop.explainer.again)
        self.loop.explainer.rest(record)  # a step that follows is explained by itself
        return None if numbers is None else LonePass(step=step, numbers=numbers)


def _is_alive(record: OptimizerRecord) -> bool:
    return any(found.ref() is not None for found in record.records)


def _has_gradient(found: GradientRecord) -> bool:
    parameter = found.ref()
    return parameter is not None and parameter.grad is not None

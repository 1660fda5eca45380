"""Looks at steps that are executed again, at the moment at which they were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim import Optimizer

from ..capturing.evaluations import Evaluations
from ..capturing.live import StepBoundary
from ..capturing.look import StepFacts
from ..fingerprints.call_record import StepTrace
from ..fingerprints.module_trace import ModuleTrace
from ..store.entries import StepEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .history import Segment
    from .program import Program

__all__ = ["Look"]


class Look:
    """Looks at steps at the moment at which they were recorded.

    Args:
        program: executes them.
        segment: in which they were recorded.
        index: of the first of them.
        seen: makes a record of the program as it is now, of the same part as another one.
        tracer: of its modules, where they are to be traced.
    """

    def __init__(
        self,
        program: Program,
        segment: Segment,
        index: int,
        seen: Callable[[StepEntry, StepFacts], StepEntry],
        tracer: ModuleTrace | None,
    ) -> None:
        self.entries: list[StepEntry] = []
        self.evaluations: list[int] = []
        self.trace: StepTrace | None = None
        self._parts = program.parts
        self._seen = seen
        self._recorded = segment.steps[index:]
        self._boundary: StepBoundary | None = None
        self._evaluations = Evaluations(program.parts)
        self._ending = _ending(self._parts.optimizers, segment.ends)
        self._is_ended = self._ending is not None or len(self._parts.optimizers) <= 1
        self._tracer = tracer

    def begin(self, *, within: bool) -> None:
        """Take hold of torch; the trace lies on top of the instrument, and goes before it.

        Args:
            within: look when the optimizer has acted; of several without a known order, after each
                of them, and the last look counts.
        """
        if within:
            self._boundary = StepBoundary(self._parts, self._acted, self._ending)
            self._boundary.start()
        else:
            self._evaluations.wait()
        if self._tracer is not None:
            self._tracer.start()

    def take(self, facts: StepFacts) -> None:
        """Look now."""
        self.entries.append(self._seen(self._recorded[0], facts))
        self.evaluations.append(self._evaluations.stop())
        self._end_trace()

    def end(self) -> None:
        """Let go of torch, the last that took hold first."""
        self._end_trace()
        self._evaluations.stop()
        if self._boundary is not None:
            self._boundary.stop()

    def _acted(self, loss: float | None) -> None:
        if not self._is_ended:
            self.entries.clear()
            self.evaluations.clear()
        if len(self.entries) >= len(self._recorded):
            return  # more than was recorded
        recorded = self._recorded[len(self.entries)]
        facts = StepFacts(step=recorded.step, loss=loss)
        boundary = self._boundary
        if boundary is not None:
            self.evaluations.append(boundary.evaluations)
            boundary.evaluations *= not self._is_ended  # of the next step in this call
        self.entries.append(self._seen(recorded, facts))
        if self._is_ended:
            self._end_trace()

    def _end_trace(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            seen = tracer.stop()
            self.trace = None if tracer.spoilt else seen


def _ending(optimizers: Sequence[Optimizer], index: int | None) -> Optimizer | None:
    """Return the optimizer after which the recorded steps were looked at, if that is known."""
    return optimizers[index] if index is not None and 0 <= index < len(optimizers) else None

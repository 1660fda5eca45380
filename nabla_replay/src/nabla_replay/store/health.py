"""What a writer does when the disk fails: it says so once, and does less, but never raises."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from nabla_core.issue import Issue

from ..rules import CAPTURE_DEGRADED
from .entries import GapEntry

__all__ = ["Health", "WriterState"]

WriterState: TypeAlias = Literal["writing", "log only", "off"]
"""Everything is written; no more checkpoints; nothing."""

_RETRY_S = 1.0


class Health:
    """The state of a writer, and what was lost since it last could write.

    Args:
        on_issue: told the one issue, on the thread on which the disk failed.
        clock: seconds, increasing.

    Attributes:
        state: what is written.
        is_well: whether nothing has failed so far.
    """

    def __init__(
        self,
        on_issue: Callable[[Issue], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state: WriterState = "writing"
        self.is_well = True
        self._on_issue, self._clock = on_issue, clock
        self._retry_at = 0.0
        self._lost = 0
        self._steps: list[int] = []
        self._reason = ""
        self._once = threading.Lock()
        self._told = False

    def may_write(self, step: int | None) -> bool:
        """Whether the log is worth a try now; after a failure, once a second.

        If it is not, the record of this step is lost.
        """
        if self.state != "off" and (not self._retry_at or self._clock() >= self._retry_at):
            return True
        self.lose("the disk still failed", step)
        return False

    def degrade(self, state: WriterState, what: str, step: int | None = None) -> None:
        """Do less from now on, and say so if it was not said before."""
        if self.state != "off":
            self.state = state
        self.is_well = False
        with self._once:
            if self._told:
                return
            self._told = True
        issue = CAPTURE_DEGRADED.issue(
            f"The capture can no longer write everything ({what}); from here on it is "
            f"{self.state}, and the training goes on.",
            step=step,
            state=self.state,
            reason=what,
        )
        self._tell(issue)

    def _tell(self, issue: Issue) -> None:
        if self._on_issue is None:
            return
        try:
            self._on_issue(issue)
        except Exception as error:  # the training must not stop because nobody can be told
            print(f"nabla: {issue.message} ({type(error).__name__}: {error})", file=sys.stderr)

    def lose(self, reason: str, step: int | None = None) -> None:
        """Count a record that could not be written."""
        self._reason = self._reason if self._lost else reason  # the first one is the cause
        self._lost += 1
        self.is_well = False
        if step is not None:
            self._steps = [*self._steps[:1], step]

    def failed(self, reason: str, step: int | None = None) -> None:
        """A write failed: this record is lost, and the next try is a second away."""
        self._retry_at = self._clock() + _RETRY_S
        self.lose(reason, step)
        self.degrade("log only", reason, step)

    def gap(self) -> GapEntry | None:
        """Return the record of what was lost, if anything was."""
        if not self._lost:
            return None
        first, last = (self._steps[0], self._steps[-1]) if self._steps else (None, None)
        return GapEntry(reason=self._reason, records=self._lost, first_step=first, last_step=last)

    def gap_written(self) -> None:
        """The gap is in the log."""
        self._lost, self._steps = 0, []

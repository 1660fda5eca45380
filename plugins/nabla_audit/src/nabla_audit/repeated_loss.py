"""AUD103: one loss of which backward is called several times for each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity
from nabla_guard.facts import OptimizerFacts
from nabla_guard.families.backwards import BackwardFacts

from .places import at, where
from .rules.protocol import ACCUMULATION_NOT_DIVIDED
from .streak import CONSECUTIVE, Streaks

__all__ = ["RepeatedLosses"]


class RepeatedLosses:
    """Judges windows in which the same gradients of the same loss were added up."""

    def __init__(self) -> None:
        self._streaks = Streaks()

    def judge(
        self,
        optimizer: OptimizerFacts,
        passes: Sequence[BackwardFacts | None],
        kept: int,
        step: int,
    ) -> Iterator[Issue]:
        """Yield an issue at the third window in a row in which all passes were one loss.

        Args:
            optimizer: whose step is being closed.
            passes: what is known of each backward pass of the window.
            kept: passes that the step uses; the others were cleared.
            step: step of the loop.
        """
        known = [found for found in passes if found is not None]
        again = (
            len(known) == len(passes) == kept
            and not known[0].again
            and all(found.again and found.versions == known[0].versions for found in known[1:])
        )
        if self._streaks.count(id(optimizer), again, step) == CONSECUTIVE:
            yield _issue(optimizer, len(known), step)


def _issue(optimizer: OptimizerFacts, count: int, step: int) -> Issue:
    return ACCUMULATION_NOT_DIVIDED.issue(
        f"backward{at(optimizer.backward_at)} is called {count} times on one loss before each of "
        f"{CONSECUTIVE} steps of {optimizer.name} (limit 1): every gradient is {count} times that "
        "of the loss.",
        step=step,
        where=where(optimizer.backward_at, optimizer.name),
        phase="loop",
        severity=Severity.HIGH,
        ratio=Quantity(value=float(count), limit=1.0),
        steps=Quantity(value=CONSECUTIVE, unit="steps", limit=CONSECUTIVE),
    )

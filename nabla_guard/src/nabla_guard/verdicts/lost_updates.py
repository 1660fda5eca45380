"""NUM141: steps that leave half-precision weights as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord

from ..facts import LoopFacts
from ..rules import LOST_UPDATE
from ..shadow.updates import UpdateWatch, Window

__all__ = ["LostUpdateDetector", "LostUpdateLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostUpdateLimits:
    """Limits of NUM141.

    Attributes:
        share: of the judged entries, unchanged in every step of the window.
        least_entries: entries needed for a verdict.
    """

    share: float = 0.9
    least_entries: int = 16


class LostUpdateDetector:
    """Judges each window of steps when it is over.

    Args:
        facts: the loop.
        said: whether another rule says already that nothing changes.
        limits: from which share on it counts.
    """

    rules = (LOST_UPDATE,)
    patient = True

    def __init__(
        self,
        facts: LoopFacts,
        said: Callable[[], bool],
        limits: LostUpdateLimits | None = None,
    ) -> None:
        self._watch = facts.gather(UpdateWatch)
        self._said = said
        self._limits = limits or LostUpdateLimits()

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the window that ended with the last step."""
        return self._judge(record.step - 1)

    def finish(self) -> Iterable[Issue]:
        """Judge the window that ended with the last step of all."""
        return self._judge(None)

    def _judge(self, step: int | None) -> Iterable[Issue]:
        window, self._watch.done = self._watch.done, None
        if window is None or not _is_lost(window, self._limits):
            return ()
        if window.lost == window.judged and self._said():
            return ()
        return (_issue(window, self._limits, step),)


def _is_lost(window: Window, limits: LostUpdateLimits) -> bool:
    first, last = window.rates
    steady = bool(first) and any(first) and all(a >= b for a, b in zip(first, last, strict=False))
    return (
        steady
        and window.judged >= limits.least_entries
        and window.lost >= limits.share * window.judged
    )


def _issue(window: Window, limits: LostUpdateLimits, step: int | None) -> Issue:
    share = window.lost / window.judged
    place = window.optimizer.step_at or window.optimizer.made_at
    name = window.optimizer.name
    return LOST_UPDATE.issue(
        f"{share:.1%} of {window.judged} judged {window.dtype} weights were left as they were by "
        f"{window.steps} steps of {name} in a row although each had a gradient (limit "
        f"{limits.share:.0%}, lr {max(window.rates[1]):.3g}).",
        step=step,
        where=place.location() if place is not None else Location(op=f"{name}.step"),
        phase="optimizer",
        unchanged_share=Quantity(value=share, limit=limits.share),
        dtype=window.dtype,
        parameters=", ".join(window.parameters[:4]),
    )

"""NUM131: a gradient scaler that does not find, or does not keep, a scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord

from ..facts import LoopFacts
from ..rules import LOSS_SCALE_COLLAPSE
from ..shadow.scales import ScaleFacts, ScaleWatch

__all__ = ["CollapseLimits", "ScaleCollapseDetector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapseLimits:
    """Limits of NUM131.

    Attributes:
        smallest_scale: below it the gradients overflow by themselves.
        in_a_row: skips without a step between them.
        skipped_share: of the last updates, once a step was made.
        least_updates: updates needed for a share.
    """

    smallest_scale: float = 1.0
    in_a_row: int = 25
    skipped_share: float = 0.25
    least_updates: int = 32


class ScaleCollapseDetector:
    """Judges every scaler of the loop; each is reported once."""

    rules = (LOSS_SCALE_COLLAPSE,)
    patient = True

    def __init__(self, facts: LoopFacts, limits: CollapseLimits | None = None) -> None:
        self._watch = facts.gather(ScaleWatch)
        self._limits = limits or CollapseLimits()
        self._told: set[ScaleFacts] = set()
        self._step = 0

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge what happened since the last step."""
        self._step = record.step
        return self._judge() if self._watch.facts else ()

    def finish(self) -> Iterable[Issue]:
        """Judge the skips after the last step; there may never have been one."""
        return self._judge()

    def _judge(self) -> Iterator[Issue]:
        for facts in self._watch.facts:
            issue = None if facts in self._told else _issue(facts, self._limits, self._step)
            if issue is not None:
                self._told.add(facts)
                yield issue


def _issue(facts: ScaleFacts, limits: CollapseLimits, step: int) -> Issue | None:
    usual = 1.5 / (facts.growth_interval + 1)  # each raise of the scale may cost one skip
    share_limit = max(limits.skipped_share, usual)
    if facts.initial >= limits.smallest_scale > facts.scale > 0.0:
        text = (
            f"The loss scale fell from {facts.initial:g} to {facts.scale:g} "
            f"(limit {limits.smallest_scale:g}): the gradients overflow without any scaling."
        )
    elif facts.in_a_row >= limits.in_a_row:
        text = (
            f"{facts.in_a_row} steps in a row were skipped (limit {limits.in_a_row - 1}); "
            f"the loss scale is down to {facts.scale:g}."
        )
    elif facts.updates >= limits.least_updates and facts.skipped_share > share_limit:
        text = (
            f"{facts.skipped_share:.0%} of the last {len(facts.recent)} steps were skipped "
            f"(limit {share_limit:.0%}); the loss scale is {facts.scale:g}."
        )
    else:
        return None
    return LOSS_SCALE_COLLAPSE.issue(
        text,
        step=step,
        where=Location(op="GradScaler.update"),
        phase="optimizer",
        scale=Quantity(value=facts.scale, limit=limits.smallest_scale),
        skipped_in_a_row=Quantity(value=facts.in_a_row, unit="steps", limit=limits.in_a_row),
        skipped_share=Quantity(value=facts.skipped_share, limit=share_limit),
    )

"""AUD408: the padding of a batch among the targets that a loss counts."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts

from .places import where
from .rules.loss import LABELS_OUT_OF_RANGE
from .streak import CONSECUTIVE
from .watches.padding import PaddingFacts, PaddingWatch

__all__ = ["PaddingDetector"]


class PaddingDetector:
    """Judges losses that counted padding in three steps in a row."""

    rules = (LABELS_OUT_OF_RANGE,)
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(PaddingWatch)
        self._in_a_row = 0

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the losses that the step was made from."""
        seen = self._watch.seen
        self._in_a_row = self._in_a_row + 1 if seen else 0
        return [_issue(seen[0], record.step)] if self._in_a_row == CONSECUTIVE else ()


def _issue(found: PaddingFacts, step: int) -> Issue:
    share = 100.0 * found.padded / found.targets
    return LABELS_OUT_OF_RANGE.issue(
        f"{found.padded} of {found.targets} targets ({share:.0f} %) are the padding_idx "
        f"{found.index} of the embedding, at positions whose token is padding too, and the loss "
        f"counts them (ignore_index is {found.ignored}; limit 0), in {CONSECUTIVE} steps in a row.",
        step=step,
        where=where(found.place, "cross_entropy"),
        phase="loss",
        severity=Severity.MEDIUM,
        padded=Quantity(value=found.padded, unit="targets", limit=0),
        targets=found.targets,
        padding_idx=found.index,
    )

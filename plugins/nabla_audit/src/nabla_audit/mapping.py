"""AUD604: known inputs that carry other labels than before."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.session import Session
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.labels import LabelFacts, LabelWatch

from .ledger import Ledger
from .rules.resume import RESUME_DATA_MAPPING_CHANGED
from .streak import CONSECUTIVE

__all__ = ["MappingDetector", "has_changed"]

_MIN_KNOWN = 8
_KEY = "labels"


class MappingDetector:
    """Judges whether labels are a function of the input that changed once."""

    rules = (RESUME_DATA_MAPPING_CHANGED,)
    patient = True

    def __init__(self, facts: LoopFacts, session: Session | None = None) -> None:
        self._labels = facts.gather(LabelWatch).facts
        self._ledger = Ledger(session)
        self._done = False

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge when three batches have followed a change."""
        labels = self._labels
        if self._done or labels.since is None or labels.batches < CONSECUTIVE:
            return ()
        self._done = True
        if not has_changed(labels):
            return ()
        return [self._ledger.made(_KEY, _issue(labels, record.step))]

    def finish(self) -> Iterable[Issue]:
        """Labels that change time and again are made anew on purpose."""
        if self._labels.again:
            self._ledger.rewrite(
                _KEY,
                f"From step {self._labels.since} on repeated inputs carry other labels than "
                "before, and most of them changed once more later (limit 1 change), as in rounds "
                "of clustering.",
                severity=Severity.INFO,
            )
        return ()


def has_changed(labels: LabelFacts) -> bool:
    """Whether most known rows changed their label at one step, and stayed changed."""
    known = labels.is_function and labels.known >= _MIN_KNOWN
    return known and labels.clashed > labels.agreed and 2 * labels.changed > labels.batches


def _issue(labels: LabelFacts, step: int) -> Issue:
    rows = labels.agreed + labels.clashed
    return RESUME_DATA_MAPPING_CHANGED.issue(
        f"Up to step {labels.since} each of {labels.known} repeated inputs always had one label; "
        f"in the {labels.batches} batches since, {labels.clashed} of {rows} repeated inputs carry "
        "another one.",
        step=step,
        where=Location(op="labels"),
        phase="resume",
        changed_rows=Quantity(value=labels.clashed, unit="rows", limit=rows / 2),
        known_rows=Quantity(value=labels.known, unit="rows", limit=_MIN_KNOWN),
        since_step=labels.since or 0,
    )

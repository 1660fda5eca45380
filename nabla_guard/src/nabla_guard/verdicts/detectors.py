"""All detectors of nabla-guard for one session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.detector import Detector

from ..facts import LoopSource
from . import nonfinite
from .flushed_gradients import FlushedGradientDetector
from .instability import InstabilityDetector
from .lost_updates import LostUpdateDetector
from .scale_collapse import ScaleCollapseDetector

if TYPE_CHECKING:
    from nabla_core.session import Session

__all__ = ["detectors_for"]

_NOTHING_CHANGES = "AUD205"


def detectors_for(session: Session) -> Iterable[Detector]:
    """Return the detectors of NUM rules for a live loop, none for another source."""
    yield from nonfinite.detectors_for(session.source)
    if isinstance(session.source, LoopSource):
        facts = session.source.facts

        def said() -> bool:
            return any(issue.rule == _NOTHING_CHANGES for issue in session.issues)

        yield InstabilityDetector(facts, session.undecide)
        yield FlushedGradientDetector(facts)
        yield ScaleCollapseDetector(facts)
        yield LostUpdateDetector(facts, said)

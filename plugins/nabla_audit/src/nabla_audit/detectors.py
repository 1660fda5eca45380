"""The detectors of this plugin for a session with a live loop."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.detector import Detector
from nabla_core.session import Session
from nabla_guard.facts import LoopSource

from .mode import ModeDetector
from .protocol import ProtocolDetector
from .wiring import WiringDetector

__all__ = ["detectors_for"]


def detectors_for(session: Session) -> Iterable[Detector]:
    """Return the detectors of which any rule is selected; none when the source is no live loop."""
    if not isinstance(session.source, LoopSource):
        return []
    facts = session.source.facts
    made: list[Detector] = [ProtocolDetector(facts), WiringDetector(facts), ModeDetector(facts)]
    return [detector for detector in made if any(map(session.selects, detector.rules))]

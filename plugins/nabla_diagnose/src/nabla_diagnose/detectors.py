"""The detectors of a session: what is judged of a log, and what of a live loop."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.detector import Detector
from nabla_core.session import Session

from .checks.check import Check
from .checks.evidence import EvidenceCheck
from .checks.nonfinite import NonFiniteCheck
from .checks.roster import make_checks
from .detector import RunDetector
from .live_detector import LiveDetector
from .options import DiagnoseOptions

__all__ = ["detectors_for"]

_EXACT = "NUM103"


def detectors_for(session: Session) -> Iterable[Detector]:
    """Return the detector of the selected rules, if any is selected."""
    checks = [
        check for check in make_checks() if any(session.selects(rule) for rule in check.rules)
    ]
    if not checks:
        return []
    options = session.options(DiagnoseOptions)
    if hasattr(session.source, "facts"):
        return [LiveDetector(_asked_for(_beside_exact(checks, session), session), options)]
    return [RunDetector(checks, options)]


def _asked_for(checks: list[Check], session: Session) -> list[Check]:
    """Return the checks without the one on too little evidence, unless a run is to be judged.

    A person who guards a loop has not asked for a verdict on its curve.
    """
    if session.source is None or "layer_norms" in session.source.offers:
        return checks
    return [check for check in checks if not isinstance(check, EvidenceCheck)]


def _beside_exact(checks: list[Check], session: Session) -> list[Check]:
    """Return the checks without those that an exact rule decides better in a live loop."""
    exact = session.host.registry.get(_EXACT)
    if exact is None or not session.selects(exact):
        return checks
    for rule in NonFiniteCheck.rules:
        session.undecide(rule, f"{_EXACT} and its family decide it exactly in a live loop")
    return [check for check in checks if not isinstance(check, NonFiniteCheck)]

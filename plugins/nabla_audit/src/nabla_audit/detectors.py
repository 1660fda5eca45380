"""The detectors of this plugin for a session with a live loop."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.detector import Detector
from nabla_core.rule import Rule
from nabla_core.session import Session
from nabla_guard.facts import LoopSource

from .accumulation import AccumulationDetector
from .columns import ColumnDetector
from .evaluation import EvaluationDetector, RecomputationDetector
from .freezing import FreezeDetector
from .gradient import DetachedTermDetector, FlatGradientDetector
from .idle import IdleDetector
from .influence import InfluenceDetector
from .inner_layers import InnerLayerDetector
from .late_edits import LateEditDetector
from .loading import LoaderDetector
from .losses import LossDetector
from .mapping import MappingDetector
from .mixed_precision import MixedPrecisionDetector
from .mode import ModeDetector
from .options import AuditOptions
from .padding import PaddingDetector
from .protocol import ProtocolDetector
from .ranks import RankDetector
from .reaching import ReachDetector
from .remaking import RemakeDetector
from .replicas import ReplicaDetector
from .restoring import RestoreDetector
from .reuse import ReuseDetector
from .schedule import RateDetector, ScheduleDetector
from .stray import StrayDetector
from .upkeep import CopyDetector, DuplicateDetector, TieDetector, ValueDetector
from .vain_rates import VainRateDetector
from .wiring import WiringDetector

__all__ = ["detectors_for"]

_KINDS = (
    IdleDetector,
    LossDetector,
    MixedPrecisionDetector,
    StrayDetector,
    ReuseDetector,
    LoaderDetector,
    ColumnDetector,
    RestoreDetector,
    DetachedTermDetector,
    FlatGradientDetector,
    EvaluationDetector,
    RecomputationDetector,
    ReplicaDetector,
    DuplicateDetector,
    TieDetector,
    FreezeDetector,
    RemakeDetector,
    VainRateDetector,
    LateEditDetector,
    InnerLayerDetector,
    PaddingDetector,
)
_DECLARED = (ValueDetector, CopyDetector, RankDetector)
"""These take what the user declares into account."""

_REFRESHED = (
    ProtocolDetector,
    WiringDetector,
    ModeDetector,
    RateDetector,
    ScheduleDetector,
    MappingDetector,
)
"""These bring their verdicts up to date when the session ends."""
_ORACLES = (AccumulationDetector, InfluenceDetector, ReachDetector)
"""These take both; the first two compute something, and say when they could not."""


def detectors_for(session: Session) -> Iterable[Detector]:
    """Return the detectors of which any rule is selected; none when the source is no live loop.

    A detector asks for its facts when it is made, so what nobody selected is not even gathered.
    """
    if not isinstance(session.source, LoopSource):
        return []
    facts = session.source.facts
    made: list[Detector] = [kind(facts) for kind in _KINDS if _is_wanted(kind.rules, session)]
    made = [
        *(kind(facts, session) for kind in _REFRESHED if _is_wanted(kind.rules, session)),
        *made,
    ]
    options = session.options(AuditOptions)
    made += [kind(facts, options) for kind in _DECLARED if _is_wanted(kind.rules, session)]
    made += [kind(facts, options, session) for kind in _ORACLES if _is_wanted(kind.rules, session)]
    return made


def _is_wanted(rules: Iterable[Rule], session: Session) -> bool:
    return any(map(session.selects, rules))

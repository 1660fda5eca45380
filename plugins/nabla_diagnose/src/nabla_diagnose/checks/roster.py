"""All checks, in the order in which they are asked."""

from __future__ import annotations

from .blow_up import BlowUpCheck
from .check import Check
from .depth import DepthCheck
from .doubted import DoubtedCheck
from .early_steps import EarlyStepsCheck
from .evidence import EvidenceCheck
from .families import FamiliesCheck
from .few_batches import FewBatchesCheck
from .first_loss import FirstLossCheck
from .floor import FloorCheck
from .growth import GrowthCheck
from .level_shift import LevelShiftCheck
from .lost_progress import LostProgressCheck
from .nonfinite import NonFiniteCheck
from .plateau import PlateauCheck
from .relapse import RelapseCheck
from .replaced import ReplacedCheck
from .rising import RisingCheck
from .scale import ScaleCheck
from .schedule import ScheduleCheck
from .small_steps import SmallStepsCheck
from .spikes import SpikeCheck
from .still_layers import StillLayersCheck
from .symmetry import SymmetryCheck
from .units import UnitsCheck
from .validation import ValidationCheck
from .waves import WavesCheck
from .weights import WeightsCheck

__all__ = ["make_checks"]

_KINDS: tuple[type[Check], ...] = (
    FirstLossCheck,
    EarlyStepsCheck,
    ReplacedCheck,
    LevelShiftCheck,
    RelapseCheck,
    DoubtedCheck,
    RisingCheck,
    BlowUpCheck,
    LostProgressCheck,
    NonFiniteCheck,
    SmallStepsCheck,
    ScheduleCheck,
    SpikeCheck,
    FamiliesCheck,
    ValidationCheck,
    EvidenceCheck,
    GrowthCheck,
    WavesCheck,
    FewBatchesCheck,
    FloorCheck,
    SymmetryCheck,
    WeightsCheck,
    UnitsCheck,
    DepthCheck,
    StillLayersCheck,
    ScaleCheck,
    PlateauCheck,
)


def make_checks() -> list[Check]:
    """Return fresh checks for one run."""
    return [kind() for kind in _KINDS]

"""What watching costs, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .timing import Spread

__all__ = ["Cost", "WorkloadCost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one mode costs on one workload.

    Attributes:
        mode: its name.
        ratio: time of a watched step over that of a bare step, once the loop is known.
        first_steps: what the first steps cost besides, in bare steps.
        is_hidden: the ratio cannot be told from that of the bare loop to itself.
    """

    mode: str
    ratio: Spread
    first_steps: float
    is_hidden: bool

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "mode": self.mode,
            "ratio": self.ratio.to_dict(),
            "first_steps": round(self.first_steps, 2),
            "hidden_by_noise": self.is_hidden,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCost:
    """What all modes cost on one workload.

    Attributes:
        workload: its name.
        summary: what it is.
        bare_step_s: time of a bare step.
        control: ratio of the bare loop to itself: the noise.
        costs: one per mode.
        rounds: measurements of each pair that there was time for.
    """

    workload: str
    summary: str
    bare_step_s: Spread
    control: Spread
    costs: tuple[Cost, ...]
    rounds: int

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "workload": self.workload,
            "rounds": self.rounds,
            "bare_step_s": {
                name: float(f"{getattr(self.bare_step_s, name):.4g}")
                for name in ("median", "lower", "upper")
            },
            "control": self.control.to_dict(),
            "costs": [cost.to_dict() for cost in self.costs],
        }

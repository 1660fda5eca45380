"""Whether ``nabla run`` captures the run, and how: ``[tool.nabla.replay]``."""

from __future__ import annotations

from dataclasses import dataclass

from nabla_core.options import option

__all__ = ["CaptureSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What ``nabla run`` records besides watching."""

    capture: bool = option(
        False, "record the run, so that it can be replayed (nabla run --capture)"
    )
    root: str = option(".nabla/runs", "folder that gets one folder per run")
    checkpoint_every: int = option(1000, "steps between two checkpoints", minimum=1)
    budget: float = option(
        0.02, "share of a step that recording may cost; 0 for everything in every step", minimum=0
    )
    artifact_dir: str = option(
        "",
        "folder for the evidence of numbers that are not finite; empty: .nabla/artifacts with "
        "--capture, and none without",
    )

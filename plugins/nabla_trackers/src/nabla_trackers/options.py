"""What can be configured under ``[tool.nabla.trackers]``."""

from __future__ import annotations

from dataclasses import dataclass

from nabla_core.options import option
from nabla_core.severity import Severity

__all__ = ["TrackerOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """Settings of the sinks ``tensorboard``, ``wandb`` and ``mlflow``."""

    tensorboard_dir: str = option("runs/nabla", "folder of the event files for TensorBoard")
    alert_from: Severity = option(Severity.MEDIUM, "severity from which W&B alerts somebody")

"""What a person declares about a run, under ``[tool.nabla.diagnose]`` or as ``hints``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nabla_core.options import option

__all__ = ["DiagnoseOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseOptions:
    """Facts about the run that its numbers do not show. All are optional.

    ``columns`` says which column of a log is which signal, e.g. ``{loss = "Train/Loss"}``.
    """

    loss: str = option(
        "", "kind of loss: cross_entropy, bce_with_logits, mse, ... or custom (not to be judged)"
    )
    classes: int = option(0, "number of classes of a classification loss", minimum=0)
    batch_size: int = option(0, "samples per batch", minimum=0)
    accumulate: int = option(1, "batches per optimizer step", minimum=1)
    planned_steps: int = option(0, "optimizer steps that the run is meant to have", minimum=0)
    optimizer: str = option("", "name of the optimizer, e.g. adamw")
    log_every: int = option(0, "optimizer steps per logged row", minimum=0)
    columns: Mapping[str, str] = field(default_factory=dict)
    history_runs: int = option(
        10, "earlier runs that a log is compared with; 0 keeps no history", minimum=0
    )

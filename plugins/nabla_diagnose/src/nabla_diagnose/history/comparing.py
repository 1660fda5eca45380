"""A run beside the earlier runs of its project: facts, no verdict, for runs differ on purpose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .summary import RunSummary

__all__ = ["Standing", "compare"]

MIN_EARLIER_RUNS = 5
_MAD_TO_SIGMA = 1.4826
_LEAST_SPREAD = 0.01
_LIKE_START = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a loss stands among earlier runs at the same step.

    Attributes:
        step: the step.
        loss: the run's loss there, the median of five rows.
        earlier: median of the earlier runs.
        deviations: distance from it, in robust deviations (1.4826 MAD, at least 1 % of the median).
        runs: number of earlier runs.
    """

    step: int
    loss: float
    earlier: float
    deviations: float
    runs: int

    def line(self) -> str:
        """Return one sentence."""
        side = "above" if self.deviations > 0 else "below"
        return (
            f"At step {self.step} the loss is {self.loss:.4g}, {abs(self.deviations):.1f} "
            f"deviations {side} the median {self.earlier:.4g} of the last {self.runs} runs."
        )


def compare(run: RunSummary, earlier: Sequence[RunSummary], last: int) -> list[Standing]:
    """Return how the run stands at the last step that all have, and where it stands out most.

    Args:
        run: the run.
        earlier: runs of the same project, the oldest first; the run itself is left out.
        last: how many of them count.

    Returns:
        Nothing unless five earlier runs have a common step, the same name of the loss, and a first
        loss within a factor of three: others are another task.
    """
    peers = [other for other in earlier if _is_peer(run, other)][-last:]
    if len(peers) < MIN_EARLIER_RUNS:
        return []
    curves = [dict(other.curve) for other in peers]
    standings = []
    for step, loss in run.curve:
        values = [curve[step] for curve in curves if step in curve and math.isfinite(curve[step])]
        if len(values) >= MIN_EARLIER_RUNS and math.isfinite(loss):
            standings.append(_standing(step, loss, values))
    if not standings:
        return []
    latest = standings[-1]
    farthest = max(standings, key=lambda found: abs(found.deviations))
    return [latest] if farthest is latest else [latest, farthest]


def _is_peer(run: RunSummary, other: RunSummary) -> bool:
    """Another run of, as far as the log shows, the same loss."""
    if other.id == run.id or other.loss_column != run.loss_column or not other.rows:
        return False
    low, high = sorted((run.first_loss, other.first_loss))
    return low == high or (low > 0.0 and high <= _LIKE_START * low) or high <= 0.0


def _standing(step: int, loss: float, values: list[float]) -> Standing:
    center = median(values)
    spread = _MAD_TO_SIGMA * median(abs(value - center) for value in values)
    spread = max(spread, _LEAST_SPREAD * abs(center), 1e-12)
    return Standing(
        step=step,
        loss=loss,
        earlier=center,
        deviations=(loss - center) / spread,
        runs=len(values),
    )

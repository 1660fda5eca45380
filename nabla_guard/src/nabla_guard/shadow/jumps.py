"""Steps whose loss is unlike the ones before: worth a shadow sample outside of the schedule."""

from __future__ import annotations

from collections import deque
from statistics import median

__all__ = ["LossJumps"]


class LossJumps:
    """Notices a loss that left its recent level, a bounded number of times.

    Args:
        ratio: a loss above the median of the recent ones times this, or below by as much, jumped.
        window_steps: recent losses.
        credit: jumps that may be noticed at once; one more is allowed every ``refill_steps``.
        refill_steps: see ``credit``.
    """

    def __init__(
        self,
        ratio: float = 3.0,
        window_steps: int = 8,
        credit: int = 3,
        refill_steps: int = 400,
    ) -> None:
        self._ratio = ratio
        self._recent: deque[float] = deque(maxlen=window_steps)
        self._credit = credit
        self._most = credit
        self._refill_steps = refill_steps
        self._refilled_at = 0

    def jumped(self, loss: float | None, step: int) -> bool:
        """Whether the loss of a step jumped, and a sample is affordable."""
        if loss is None:
            return False
        recent = self._recent
        level = median(recent) if recent and self._is_outside(loss, recent[-1]) else 0.0
        recent.append(loss)
        if step - self._refilled_at >= self._refill_steps:
            self._credit, self._refilled_at = min(self._credit + 1, self._most), step
        if level <= 0.0 or not self._credit or not self._is_outside(loss, level):
            return False
        self._credit -= 1
        return True

    def _is_outside(self, loss: float, level: float) -> bool:
        return loss > self._ratio * level or loss * self._ratio < level

"""Metrics of the task beside the validation loss: do they still improve?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..readers.naming import direction_of

__all__ = ["MetricBook", "is_metric"]

_PREFIXES = ("val_", "eval_", "valid_", "validation_", "test_")
_SIGNS = {"higher": 1, "lower": -1, "unknown": 0}
_NEAR = 0.1
"""Share of a metric's range within which it counts as at its best."""


class MetricBook:
    """Follows signals such as ``val_accuracy``, with the direction that their names tell."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def note(self, signals: Mapping[str, float]) -> None:
        """Take the metrics of an evaluation in."""
        for name, value in signals.items():
            sign = _direction(name)
            if not sign or value != value:
                continue
            score = sign * value
            known = self._seen.get(name)
            if known is None:
                self._seen[name] = [score, score, score, 0.0]
                continue
            known[1] = min(known[1], score)
            known[3] = 0.0 if score > known[2] else known[3] + 1.0
            known[2] = max(known[2], score)

    def still_improving(self) -> str | None:
        """Return a metric that reached its best in the last two evaluations, and gained by it."""
        for name, (first, _, best, ago) in self._seen.items():
            if ago <= 2.0 and best - first > 0.02 * (abs(first) + 1e-12):
                return name
        return None


def is_metric(name: str) -> bool:
    """Whether a signal is followed: a metric of held-out data whose direction is known."""
    return _direction(name) != 0


@lru_cache(maxsize=256)
def _direction(name: str) -> int:
    """1 where higher is better, -1 where lower is, 0 for no metric or the validation loss."""
    lowered = name.lower().replace("/", "_").replace(".", "_").replace("-", "_")
    prefix = next((found for found in _PREFIXES if lowered.startswith(found)), "")
    if not prefix or lowered == "val_loss":
        return 0
    return _SIGNS[direction_of(lowered.removeprefix(prefix))]

"""A rise of the loss that waits for a second witness: the validation loss, or the gradient.

A training loss also rises where the task got harder and nothing broke: with other data, or with a
larger batch under a contrastive loss, whose level is the logarithm of the batch. The validation
loss, which is measured as before, then goes on falling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

__all__ = ["Doubts", "is_harder_task"]

_KEPT = 48
_WITNESSES = 2
_MOST_ROWS = 45
"""Rows between two evaluations, at most, for the next ones to be worth waiting for."""
_ABOVE = 1.05
_GRADIENT = 0.8
"""Share of its level before to which the gradient fell: where something broke and the loss rose
above its start, it rose; 1.07 was the least that was seen."""
_LEAST_ROWS = 8


@dataclass(frozen=True, slots=True)
class _Doubt:
    issue: Issue
    since: int
    before: float
    until: int


class Doubts:
    """Keeps the latest evaluations of a run, and an issue that waits for the next ones."""

    def __init__(self) -> None:
        self._evaluations: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._doubt: _Doubt | None = None

    def note(self, row: int, value: float) -> None:
        """Take an evaluation in that followed a row."""
        self._evaluations.append((row, value))

    def consider(self, issue: Issue, since: int, row: int) -> tuple[Issue, ...]:
        """Return what is to be said of a rise at once; nothing if evaluations will soon tell.

        Args:
            issue: what would be said of it.
            since: row at which the loss rose.
            row: the present one.
        """
        if self._doubt is not None:
            return ()
        earlier = [entry for entry in self._evaluations if entry[0] < since]
        if len(earlier) < 2 or not 0 < earlier[-1][0] - earlier[-2][0] <= _MOST_ROWS:
            return (issue,)
        gap = earlier[-1][0] - earlier[-2][0]
        self._doubt = _Doubt(issue, since, earlier[-1][1], row + _WITNESSES * gap + _LEAST_ROWS)
        return self.settle(row)

    def denies(self, since: int) -> bool:
        """Whether all evaluations since a row, two at least, are below the last one before it."""
        before = [value for at, value in self._evaluations if at < since]
        after = [value for at, value in self._evaluations if at >= since]
        return bool(before) and len(after) >= _WITNESSES and max(after) < before[-1]

    def settle(self, row: int) -> tuple[Issue, ...]:
        """Return the issue that waits, if the evaluations of its rise tell, or never came."""
        doubt = self._doubt
        if doubt is None:
            return ()
        after = [value for at, value in self._evaluations if at >= doubt.since]
        if any(value >= doubt.before for value in after) or row > doubt.until:
            return self.release()
        if len(after) < _WITNESSES:
            return ()
        self._doubt = None
        return (_explained(doubt.issue, doubt.before, after[-1]),)

    def release(self) -> tuple[Issue, ...]:
        """Return the issue that waits as it is."""
        doubt, self._doubt = self._doubt, None
        return () if doubt is None else (doubt.issue,)


def is_harder_task(losses: tuple[float, float], gradients: Sequence[float], rows: int) -> bool:
    """Whether a loss is above its start while the gradient became smaller.

    Args:
        losses: at the start of the run, and now.
        gradients: the latest norms, one for each row.
        rows: how many of them belong to the rise.
    """
    before, after = gradients[:-rows], gradients[-rows:]
    if min(len(before), len(after)) < _LEAST_ROWS or losses[1] <= _ABOVE * losses[0]:
        return False
    return 0.0 < _middle(after) < _GRADIENT * _middle(before)


def _explained(issue: Issue, before: float, after: float) -> Issue:
    return replace(
        issue,
        severity=Severity.INFO,
        message=f"{issue.message} The validation loss did not follow, it went from {before:.4g} to "
        f"{after:.4g}: the training data or the batch became another one.",
        evidence={**issue.evidence, "val_loss": Quantity(value=after, limit=before)},
    )


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]

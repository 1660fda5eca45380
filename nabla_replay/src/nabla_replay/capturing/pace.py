"""How much of the state is hashed per step, so that the cost stays within what was allowed."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["PARTS", "Pace"]

PARTS = (1, 2, 4, 8, 16, 32)
"""In how many steps the whole state is looked at once."""

_OF_RANKS = 16  # replicas that drift apart must not do so for long
_FIRST_LOOK = 6
_NEXT_LOOK = 64
_WINDOW = 32
_UNNOTICED_S = 20e-6
_RECORD_BYTES = 72  # of fingerprints in a record: a long run has millions of them
_HEADROOM = 0.75  # of the budget: what is measured between two looks must not exceed it


class Pace:
    """Chooses the number of parts from what steps and hashes were measured to cost.

    Args:
        budget: share of a step that recording may cost; ``None`` for everything in every step.
        whole_s: seconds that hashing the whole state takes.
        whole_bytes: size of all its fingerprints.
        most: number of parts beyond which some would be empty.
        fixed: never change the number of parts: ranks can be compared only where all of them look
            at the same one.
    """

    def __init__(
        self,
        budget: float | None,
        whole_s: float,
        whole_bytes: int = 0,
        *,
        most: int = PARTS[-1],
        fixed: bool = False,
    ) -> None:
        self.budget = budget
        self.whole_s = whole_s
        self._fixed = fixed
        self._allowed = tuple(parts for parts in PARTS if parts <= max(most, 1))
        short = (parts for parts in self._allowed if whole_bytes / parts <= _RECORD_BYTES)
        self._fewest = next(short, self._allowed[-1])
        self.parts = self._first_choice()
        self._steps_s: deque[float] = deque(maxlen=_WINDOW)
        self._costs_s: deque[float] = deque(maxlen=_WINDOW)
        self._hashes_s: deque[float] = deque(maxlen=_WINDOW)
        self._wait = _FIRST_LOOK
        self._look = _FIRST_LOOK

    def note(self, step_s: float, cost_s: float, hash_s: float) -> bool:
        """Take in one step; return whether the number of parts changes from the next one on.

        Args:
            step_s: seconds that the program took.
            cost_s: seconds that recording took, hashing included.
            hash_s: seconds of it that hashing took: in a loop the tensors are not at hand, and it
                takes longer than when it is tried out.
        """
        if self.budget is None or self._fixed:
            return False
        self._steps_s.append(step_s)
        self._costs_s.append(cost_s)
        self._hashes_s.append(hash_s)
        self._look -= 1
        if self._look:
            return False
        self._wait = self._look = min(2 * self._wait, _NEXT_LOOK)
        chosen = self._choice(self.budget)
        if chosen == self.parts:
            return False
        self.parts = chosen
        for window in (self._steps_s, self._costs_s, self._hashes_s):
            window.clear()
        return True

    @property
    def share(self) -> float:
        """Measured cost as a share of a step; 0 before anything was measured."""
        if not self._steps_s:
            return 0.0
        return statistics.median(self._costs_s) / max(statistics.median(self._steps_s), 1e-9)

    def _first_choice(self) -> int:
        """Before any step was timed: what costs next to nothing."""
        if self.budget is None:
            return PARTS[0]
        if self._fixed:
            return min(self._allowed[-1], _OF_RANKS)
        fitting = (parts for parts in self._allowed if self.whole_s / parts <= _UNNOTICED_S)
        return max(next(fitting, self._allowed[-1]), self._fewest)

    def _choice(self, budget: float) -> int:
        allowed_s = budget * statistics.median(self._steps_s) * _HEADROOM
        hash_s = statistics.median(self._hashes_s)
        self.whole_s = hash_s * self.parts
        fixed_s = max(statistics.median(self._costs_s) - hash_s, 0.0)
        for parts in self._allowed:
            if fixed_s + self.whole_s / parts <= allowed_s:
                return max(parts, self._fewest)
        return self._allowed[-1]

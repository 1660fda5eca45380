"""How much of the state is hashed per step, so that the cost stays within what was allowed."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["EVERY", "PARTS", "Pace"]

PARTS = (1, 2, 4, 8, 16, 32)
"""In how many looks the whole state is looked at once."""

EVERY = (2, 4, 8, 16)
"""Of so many steps one is looked at and the others are recorded in brief, if nothing less helps."""

_OF_RANKS = 16  # replicas that drift apart must not do so for long
_FIRST_LOOK = 6
_UNHURRIED = 16  # looks before a step is recorded in brief: a short run is not worth it
_NEXT_LOOK = 64
_WINDOW = 32
_UNNOTICED_S = 20e-6
_RECORD_BYTES = 72  # of fingerprints in a record: a long run has millions of them
_BRIEF = 0.25  # of a look, as long as none was timed
_HEADROOM = 0.75  # of the budget: what is measured between two looks must not exceed it


class Pace:
    """Chooses from what steps and looks were measured to cost: how many parts the state has, and
    how many steps share one look.

    Args:
        budget: share of a step that recording may cost; ``None`` for everything in every step.
        whole_s: seconds that hashing the whole state takes.
        whole_bytes: size of all its fingerprints.
        most: number of parts beyond which some would be empty.
        fixed: never change anything: ranks can be compared only where all of them look at the same
            part.

    Attributes:
        parts: in how many looks the whole state is looked at.
        every: of so many steps one is looked at.
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
        self.every = 1
        self._fixed = fixed
        self._allowed = tuple(parts for parts in PARTS if parts <= max(most, 1))
        short = (parts for parts in self._allowed if whole_bytes / parts <= _RECORD_BYTES)
        self._fewest = next(short, self._allowed[-1])
        self.parts = self._first_choice()
        self._steps_s: deque[float] = deque(maxlen=_WINDOW)
        self._costs_s: deque[float] = deque(maxlen=_WINDOW)
        self._hashes_s: deque[float] = deque(maxlen=_WINDOW)
        self._brief_s: deque[float] = deque(maxlen=_WINDOW)
        self._wait = _FIRST_LOOK
        self._look = _FIRST_LOOK
        self._looks = 0

    def note(self, step_s: float, cost_s: float, hash_s: float) -> bool:
        """Take in one look; return whether anything changes from the next step on.

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
        self._looks += 1
        self._look -= 1
        if self._look:
            return False
        self._wait = self._look = min(2 * self._wait, _NEXT_LOOK)
        chosen = self._choice(self.budget)
        if chosen == (self.parts, self.every):
            return False
        self.parts, self.every = chosen
        for window in (self._steps_s, self._costs_s, self._hashes_s):
            window.clear()
        return True

    def note_brief(self, cost_s: float) -> None:
        """Take in what recording a step in brief took."""
        self._brief_s.append(cost_s)

    @property
    def share(self) -> float:
        """Measured cost as a share of a step; 0 before anything was measured."""
        if not self._steps_s:
            return 0.0
        cost_s = statistics.median(self._costs_s)
        mean_s = self._mean_s(cost_s, self.every)
        return mean_s / max(statistics.median(self._steps_s), 1e-9)

    def _first_choice(self) -> int:
        """Before any step was timed: what costs next to nothing."""
        if self.budget is None:
            return PARTS[0]
        if self._fixed:
            return min(self._allowed[-1], _OF_RANKS)
        fitting = (parts for parts in self._allowed if self.whole_s / parts <= _UNNOTICED_S)
        return max(next(fitting, self._allowed[-1]), self._fewest)

    def _choice(self, budget: float) -> tuple[int, int]:
        """Return parts and steps per look: of what fits, what looks at everything soonest."""
        allowed_s = budget * statistics.median(self._steps_s) * _HEADROOM
        hash_s = statistics.median(self._hashes_s)
        self.whole_s = hash_s * self.parts
        fixed_s = max(statistics.median(self._costs_s) - hash_s, 0.0)
        unhurried = self._looks < _UNHURRIED
        for choices in ((1,), () if unhurried else EVERY):
            fitting = [
                (parts * every, every, parts)
                for every in choices
                for parts in self._allowed
                if self._mean_s(fixed_s + self.whole_s / parts, every) <= allowed_s
            ]
            if fitting:
                _, every, parts = min(fitting)
                return max(parts, self._fewest), every
        return self._allowed[-1], 1 if unhurried else EVERY[-1]

    def _mean_s(self, look_s: float, every: int) -> float:
        """Seconds per step, where one of ``every`` is looked at for ``look_s``."""
        brief_s = statistics.median(self._brief_s) if self._brief_s else look_s * _BRIEF
        return (look_s + (every - 1) * min(brief_s, look_s)) / every

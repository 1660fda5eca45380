"""Where one run ends and the next begins, row by row."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

__all__ = ["Place", "PlaceKind", "RunTracker"]

_REMEMBERED_STEPS = 16


class PlaceKind(Enum):
    """How a row belongs to the rows before it."""

    NEXT = "next"  # a later step
    SAME = "same"  # more facts about the current step
    REPEAT = "repeat"  # the current step again, with facts that are already known
    RESTART = "restart"  # the first row of another run
    RESUME = "resume"  # back to the middle: the same run, continued from a checkpoint


@dataclass(frozen=True, slots=True)
class Place:
    """The step of a row, and how it belongs to the rows before it."""

    kind: PlaceKind
    step: int


class RunTracker:
    """Follows the count of a log.

    A step that falls while the epoch rises counts within epochs, and is continued. A step that
    falls to the beginning starts another run; one that falls to the middle is the same run,
    continued from a checkpoint. A row that only brings, late, facts that its step did not have is
    neither.

    Args:
        numbered: the log has no count of steps.
        inner: its count starts anew in every epoch; that of held-out rows is then their own.
    """

    def __init__(self, numbered: bool, inner: bool = False) -> None:
        self._numbered = numbered
        self._inner = inner
        self._recent: deque[tuple[int, frozenset[str]]] = deque(maxlen=_REMEMBERED_STEPS)
        self.begin()

    def begin(self) -> None:
        """Forget the run: the next row is the first of another one."""
        self.first: int | None = None
        self._counted = False
        self.last: int = -1
        self._offset = 0
        self._epoch = -math.inf
        self._known: set[str] = set()
        self._rows = 0
        self._recent.clear()

    def skip_to(self, step: int, epoch: float | None, rows: int) -> None:
        """Note that rows up to ``step`` were taken at once, each a later step."""
        if self.first is None:
            self.first = step
        self._counted = not self._numbered
        self.last = step
        self._rows += rows
        self._known = set()
        self._recent.clear()
        if epoch is not None and epoch > self._epoch:
            self._epoch = epoch

    def know(self, signals: Collection[str]) -> None:
        """Note which facts the latest step has."""
        self._known.update(signals)

    @property
    def offset(self) -> int:
        """What is added to the count of the file, because it starts anew in every epoch."""
        return self._offset

    def place(self, step: float | None, epoch: float | None, signals: Collection[str]) -> Place:
        """Return where a row belongs, and take it as the latest one."""
        found = self._place(step, epoch, signals)
        if found.kind is PlaceKind.RESTART:
            self.begin()
        elif found.kind is PlaceKind.RESUME:
            self._recent.clear()
        if found.kind is not PlaceKind.SAME:
            self._recent.append((self.last, frozenset(self._known)))
            self._known = set()
            self._rows += 1
        self.first = found.step if self.first is None else self.first
        self._counted = self._counted or step is not None
        self.last = found.step
        self._known.update(signals)
        if epoch is not None and math.isfinite(epoch):
            self._epoch = epoch
        return found

    def _place(self, step: float | None, epoch: float | None, signals: Collection[str]) -> Place:
        fresh = self._known.isdisjoint(signals)
        if self._numbered:
            if self.first is not None and fresh and _is_held_out(signals):
                return Place(PlaceKind.SAME, self.last)
            return self._place_by_epoch(epoch)
        if step is None or not math.isfinite(step):
            known = self.first is not None
            kind = PlaceKind.SAME if known and fresh else PlaceKind.REPEAT
            return Place(kind, max(self.last, 0))
        if self._inner and self.first is not None and _is_held_out(signals):
            return Place(PlaceKind.SAME if fresh else PlaceKind.REPEAT, self.last)
        given = int(step) + self._offset
        if self.first is None or given > self.last:
            return Place(PlaceKind.NEXT, given)
        if given == self.last:
            return self._place_again(given, fresh)
        if _is_held_out(signals):  # evaluations may have a count of their own
            return Place(PlaceKind.SAME if fresh else PlaceKind.REPEAT, self.last)
        if epoch is not None and epoch > self._epoch and int(step) < self.last:
            self._offset = self.last + (int(step) == 0)  # epochs count from 0 or from 1
            return Place(PlaceKind.NEXT, int(step) + self._offset)
        if self._is_late(given, signals):
            return Place(PlaceKind.SAME if fresh else PlaceKind.REPEAT, self.last)
        return self._place_back(int(step))

    def _place_again(self, step: int, fresh: bool) -> Place:
        if fresh:
            return Place(PlaceKind.SAME, step)
        if step == self.first and self._rows == 1 and self._counted:
            return Place(PlaceKind.RESTART, step)
        return Place(PlaceKind.REPEAT, step)

    def _place_by_epoch(self, epoch: float | None) -> Place:
        if epoch is not None and epoch < self._epoch:
            return Place(PlaceKind.RESTART, 0)
        return Place(PlaceKind.NEXT, self.last + 1)

    def _is_late(self, step: int, signals: Collection[str]) -> bool:
        for known_step, known in self._recent:
            if known_step == step:
                return known.isdisjoint(signals)
        return False

    def _place_back(self, step: int) -> Place:
        first = self.first or 0
        if step <= first + 0.1 * (self.last - first):
            return Place(PlaceKind.RESTART, step)
        return Place(PlaceKind.RESUME, step)


def _is_held_out(signals: Collection[str]) -> bool:
    return all(name.startswith(("val_", "test_")) for name in signals)

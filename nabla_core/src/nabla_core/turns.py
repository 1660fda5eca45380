"""Whose turn it is: which detectors judge which record, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from operator import attrgetter
from typing import Any

from .detector import Detector
from .issue import Issue
from .records import StepRecord

__all__ = ["Turn", "Turns"]

_Judge = Callable[[Any], Iterable[Issue]]
Turn = tuple[Detector, _Judge, StepRecord | list[StepRecord]]
"""Who judges, with which method, and what it is given."""

_MOST_WAITING = 64
_step_of = attrgetter("step")


class Turns:
    """The detectors of a session, in the order in which they judge.

    Attributes:
        calm: the source saw nothing that differs from the steps before. Patient detectors are not
            asked then, and deferrable ones are given several records at once, later.
        detectors: all of them.
    """

    def __init__(self) -> None:
        self.calm = False
        self.detectors: tuple[Detector, ...] = ()
        self._prompt: tuple[Detector, ...] | None = None
        self._deferring: tuple[Detector, ...] = ()
        self._waiting: list[StepRecord] = []

    def add(self, detector: Detector) -> None:
        """Let it judge from now on."""
        self.detectors = (*self.detectors, detector)
        self._prompt = None

    def remove(self, detector: Detector) -> None:
        """Never ask it again."""
        self.detectors = tuple(found for found in self.detectors if found is not detector)
        self._deferring = tuple(found for found in self._deferring if found is not detector)
        self._prompt = None

    def of(self, record: StepRecord) -> list[Turn]:
        """Return the turns that a new record makes due."""
        if not self.calm:
            self._prompt = None
            turns = _turns(self.detectors, record)
            return self.due() + turns if self._waiting else turns
        prompt = self._asked() if self._prompt is None else self._prompt
        turns = _turns(prompt, record) if prompt else []
        if self._deferring:
            self._waiting.append(record)
            if len(self._waiting) >= _MOST_WAITING:
                turns += self.due()
        return turns

    def due(self) -> list[Turn]:
        """Return the turns that were put off."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return []
        turns: list[Turn] = []
        for found in self._deferring:
            at_once = getattr(found, "steps", None)
            if at_once is not None:
                turns.append((found, at_once, waiting))
            else:
                turns += [(found, found.step, record) for record in waiting]
        return turns

    @property
    def needed(self) -> bool:
        """Whether anybody wants to see the present step."""
        if not self.calm:
            return bool(self.detectors)
        return bool(self._asked() or self._deferring)

    def _asked(self) -> tuple[Detector, ...]:
        """Return those who are asked about every step of this calm; found out at its beginning."""
        if self._prompt is None:
            rest = [found for found in self.detectors if not getattr(found, "patient", False)]
            self._deferring = tuple([found for found in rest if _is_deferrable(found)])
            self._prompt = tuple(_without(rest, self._deferring))
        return self._prompt


def _turns(detectors: tuple[Detector, ...], record: StepRecord) -> list[Turn]:
    return [*zip(detectors, map(_step_of, detectors), repeat(record))]


def _is_deferrable(detector: Detector) -> bool:
    return bool(getattr(detector, "deferrable", False))


def _without(detectors: Iterable[Detector], others: tuple[Detector, ...]) -> list[Detector]:
    return [found for found in detectors if found not in others]

"""Looks at layers and inputs of a live loop now and then: the detector of CAU106 to CAU108."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.rule import Rule
from nabla_core.session import Session
from nabla_core.severity import Severity

from .depth import Sizes, input_shift
from .looks import EndsLook, FadingLook
from .rules import FADING_GRADIENTS, INPUT_SHIFT, SATURATED_LAYER

__all__ = ["CloseLooks", "ShiftOfInputs", "Sized"]

_EVERY, _LATER, _RARELY = 8, 128, 64


class Sized(Protocol):
    """Knows how large the inputs were; see :class:`.input_sizes.InputSizes`."""

    def histories(self) -> Sequence[tuple[str, Sizes]]:
        """Steps and sizes, with the class of each root module."""


class CloseLooks:
    """Looks at every eighth step, later at every 64th, and closer only at what looks odd.

    Args:
        session: says which rules are selected.
        fading: for CAU106.
        ends: for CAU107, which is about the first steps.
    """

    rules: tuple[Rule, ...] = (FADING_GRADIENTS, SATURATED_LAYER)
    patient = True

    def __init__(self, session: Session, fading: FadingLook, ends: EndsLook) -> None:
        self._fading: FadingLook | None = fading if session.selects(FADING_GRADIENTS) else None
        self._ends: EndsLook | None = ends if session.selects(SATURATED_LAYER) else None
        self._next_step = _EVERY

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the last close look and ask for the next one; see ``Detector``."""
        if record.step < self._next_step:
            return ()
        self._next_step = record.step + (_EVERY if record.step < _LATER else _RARELY)
        found: list[Issue] = []
        if self._fading is not None:
            found += self._fading.judge()
            if found:
                self._fading = None
        if self._ends is not None:
            ends = list(self._ends.judge())
            if ends or record.step >= _LATER:
                self._ends = None
            found += ends
        return found


class ShiftOfInputs:
    """Says how the inputs changed their size, if anything else was found.

    Args:
        session: whose findings decide.
        sizes: of the inputs.
    """

    rules: tuple[Rule, ...] = (INPUT_SHIFT,)
    patient = True

    def __init__(self, session: Session, sizes: Sized) -> None:
        self._session, self._sizes = session, sizes

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge nothing; see ``Detector``."""
        return ()

    def finish(self) -> Iterable[Issue]:
        """Judge the whole run."""
        return self.shown()

    def shown(self) -> list[Issue]:
        """Return how the inputs changed so far."""
        if all(issue.severity <= Severity.INFO for issue in self._session.issues):
            return []
        return [
            issue
            for module, sizes in self._sizes.histories()
            for issue in input_shift(module, sizes)
        ]

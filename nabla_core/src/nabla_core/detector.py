"""What a plugin gives to a session: detectors, extra signals, extra state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from .issue import Issue
    from .records import StepRecord
    from .report import Section
    from .rule import Rule

__all__ = [
    "Detector",
    "FactSource",
    "Finisher",
    "Illustrator",
    "Signal",
    "StateProvider",
    "is_detector",
    "is_finisher",
    "is_illustrator",
]


@runtime_checkable
class Detector(Protocol):
    """Decides rules over step records. A small class over numbers: no hook, no file, no clock.

    It may have an attribute ``patient``: while that is true, it need not be asked about steps in
    which its source saw nothing that differs from the steps before. With a true attribute
    ``deferrable`` it is given the records of such steps all the same, but some steps later; it may
    then have a method ``steps``, which judges a list of them as ``step`` would one by one.
    """

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that this detector can report."""

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge one optimizer step.

        Runs in the training loop: O(1), no logging, no formatting unless something is wrong.
        """


def is_detector(found: object) -> TypeGuard[Detector]:
    """Whether ``found`` can judge: what ``isinstance`` says, at a tenth of its cost."""
    return callable(getattr(found, "step", None)) and hasattr(found, "rules")


@runtime_checkable
class Finisher(Protocol):
    """A detector that also judges the whole run when the session finishes."""

    def finish(self) -> Iterable[Issue]:
        """Judge what could only be known at the end."""


@runtime_checkable
class Illustrator(Protocol):
    """A detector that can also show what it saw. Asked once, when the session has finished."""

    def sections(self) -> Iterable[Section]:
        """Return parts for the report, with plots of bounded size."""


def is_finisher(found: object) -> TypeGuard[Finisher]:
    """Whether ``found`` also judges the whole run."""
    return callable(getattr(found, "finish", None))


def is_illustrator(found: object) -> TypeGuard[Illustrator]:
    """Whether ``found`` can also show what it saw."""
    return callable(getattr(found, "sections", None))


@runtime_checkable
class FactSource(Protocol):
    """Where step records come from: a live loop, a callback, a log file, a captured run."""

    @property
    def name(self) -> str:
        """How reports call it, e.g. ``"live loop"`` or ``"metrics.csv"``."""

    @property
    def offers(self) -> frozenset[str]:
        """Names of the signals and facts that this source can give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A scalar that a plugin can compute from a live loop.

    Attributes:
        name: name of the signal in :class:`StepRecord`.
        target: ``"module:attribute"`` of the function that computes it.
        unit: unit of the value.
    """

    name: str
    target: str
    unit: str = ""


class StateProvider(Protocol):
    """State outside the model and the optimizer that a capture must save and restore."""

    @property
    def name(self) -> str:
        """Name of the component in the captured run."""

    def capture(self) -> Mapping[str, object]:
        """Return the state as nested mappings of tensors and scalars."""

    def restore(self, state: Mapping[str, object]) -> None:
        """Undo to a captured state."""

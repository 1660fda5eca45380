"""Keeps the layers' ranges of the steps around a finding, and says how a change went through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.rule import Rule
from nabla_core.session import Session
from nabla_core.severity import Severity

from .frames import Frame, Frames, largest
from .onsets import Onset
from .propagation import Propagation, propagation_of
from .propagation_issue import issue_of
from .rules import PROPAGATION

__all__ = ["Layered", "RangeSource", "Trail", "trails_for"]

_MOST_INCIDENTS = 4
_STEPS = 64

Ranges = Mapping[str, Sequence[float]]


class RangeSource(Protocol):
    """Gives the ranges of the layers in the latest steps."""

    @property
    def layout(self) -> tuple[str, ...]:
        """Names of the layers, in the order in which they were first called."""

    @property
    def recent(self) -> Iterable[tuple[int, Ranges]]:
        """The latest steps with their ranges, the oldest first, the present one included."""

    def keep(self, steps: int) -> None:
        """Keep the ranges of at least so many of the coming steps."""


@runtime_checkable
class Layered(Protocol):
    """A source of facts that measures its layers."""

    @property
    def layers(self) -> RangeSource:
        """The ranges."""


class Trail:
    """Looks at the latest steps whenever a rule finds something; costs nothing before that.

    Args:
        session: whose findings it follows.
        source: measures the layers.
    """

    rules: tuple[Rule, ...] = (PROPAGATION,)
    patient = True

    def __init__(self, session: Session, source: Layered) -> None:
        self._session = session
        self._layers = source.layers  # the source lets go of them when watching ends
        self._found: list[Propagation] = []
        self._seen: set[tuple[str, int, str]] = set()
        self._looked_at: int | None = None
        self._layers.keep(_STEPS)
        session.subscribe(self._look)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """See :class:`~nabla_core.detector.Detector`: nothing is judged in a step."""
        return ()

    def finish(self) -> Iterable[Issue]:
        """Return how each incident went through the layers; nothing where nobody found a fault."""
        if any(issue.severity > Severity.INFO for issue in self._session.issues):
            self._note()
        return [issue_of(found) for found in self._found]

    # ------------------------------------------------------------------ private
    def _look(self, issue: Issue) -> None:
        if issue.severity > Severity.INFO:
            self._note()

    def _note(self) -> None:
        """Look at the latest steps, once however many rules find something in one of them."""
        step = self._session.last_step
        if step == self._looked_at or len(self._found) >= _MOST_INCIDENTS:
            return
        self._looked_at = step
        found = propagation_of(self._frames())
        if found is not None and self._is_new(found.layout, found.onsets[0]):
            self._found.append(found)

    def _is_new(self, layout: tuple[str, ...], origin: Onset) -> bool:
        key = (layout[origin.layer], origin.step, origin.quantity)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _frames(self) -> Frames:
        layers = self._layers
        frames = [
            Frame(
                step,
                largest(ranges, "out_min", "out_max"),
                largest(ranges, "grad_out_min", "grad_out_max"),
            )
            for step, ranges in layers.recent
        ]
        return Frames(layers.layout, tuple(frames))


def trails_for(session: Session) -> Iterable[Trail]:
    """Return what follows the findings of a session; nothing where no layers are measured."""
    source = session.source
    if not session.selects(PROPAGATION) or not isinstance(source, Layered):
        return ()
    return (Trail(session, source),)

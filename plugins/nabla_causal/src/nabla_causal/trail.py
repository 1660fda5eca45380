"""Keeps the layers' ranges of the steps around a finding, and says how a change went through."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Protocol, runtime_checkable

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.rule import Rule
from nabla_core.session import Session
from nabla_core.severity import Severity

from .frames import Frame, Frames, largest
from .layer_faults import DEAD_STEPS, dead_layer, layer_jump
from .onsets import Onset
from .propagation import Propagation, propagation_of
from .propagation_issue import issue_of
from .rules import DEAD_LAYER, LAYER_JUMP, PROPAGATION

__all__ = ["Layered", "RangeSource", "Trail", "trails_for"]

_MOST_INCIDENTS = 4
_STEPS = 64
_RISE = 20.0
_LONGEST_WAIT = 32

Ranges = Mapping[str, Sequence[float]]
_Snapshot = tuple[tuple[str, ...], Collection[int], tuple[tuple[int, Ranges], ...]]


class RangeSource(Protocol):
    """Gives the ranges of the layers in the latest steps."""

    @property
    def layout(self) -> tuple[str, ...]:
        """Names of the layers, in the order in which they were first called."""

    @property
    def ranges(self) -> Ranges:
        """Those of the present step."""

    @property
    def shared(self) -> Collection[int]:
        """Numbers of the layers that several others pass on to: they have no one place."""

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
    """Looks at the latest steps whenever a rule finds something, or a layer looks odd.

    Between two findings it compares the ranges of every eighth step that it is asked about with
    those it saw before, and looks closer only when a layer became zero or much larger.

    Args:
        session: whose findings it follows.
        source: measures the layers.
    """

    rules: tuple[Rule, ...] = (PROPAGATION, DEAD_LAYER, LAYER_JUMP)
    patient = True

    def __init__(self, session: Session, source: Layered) -> None:
        self._session = session
        self._layers = source.layers  # the source lets go of them when watching ends
        self._found: list[Propagation] = []
        self._waiting: list[_Snapshot] = []
        self._seen: set[tuple[str, int, str]] = set()
        self._looked_at: int | None = None
        self._usual: list[float] = []
        self._next_step, self._wait_steps = DEAD_STEPS, DEAD_STEPS
        self._told: set[str] = set()
        self._layers.keep(_STEPS)
        session.subscribe(self._look)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the layers, now and then; see :class:`~nabla_core.detector.Detector`."""
        if record.step < self._next_step:
            return ()
        self._next_step = record.step + self._wait_steps
        if not self._looks_odd():
            return ()
        found = self._judged()
        if not found:  # what can't be decided is looked at more and more rarely
            self._wait_steps = min(2 * self._wait_steps, _LONGEST_WAIT)
        return found

    def finish(self) -> Iterable[Issue]:
        """Return the faults of layers, and how each incident went through them."""
        faults = self._judged()
        if faults or any(issue.severity > Severity.INFO for issue in self._session.issues):
            self._note()
        return [*faults, *self.shown()]

    def shown(self) -> list[Issue]:
        """Return how the incidents so far went through the layers."""
        self._settle()
        return [issue_of(found) for found in self._found]

    # ------------------------------------------------------------------ private
    def _looks_odd(self) -> bool:
        """Whether a layer is zero, or much larger than at any earlier look."""
        now = largest(self._layers.ranges, "out_min", "out_max")
        usual = self._usual + [0.0] * (len(now) - len(self._usual))
        odd = any(
            value == 0.0 or 0.0 < _RISE * known < value
            for value, known in zip(now, usual, strict=False)
        )
        self._usual = [max(pair) for pair in zip(now, usual, strict=False)]
        return odd

    def _judged(self) -> list[Issue]:
        """Return what the latest steps show of single layers; each rule speaks once."""
        frames = self._frames()
        found: list[Issue] = []
        for rule, judge in ((DEAD_LAYER, dead_layer), (LAYER_JUMP, layer_jump)):
            if rule.id not in self._told and self._session.selects(rule):
                found += judge(frames)
        self._told.update(issue.rule for issue in found)
        return found

    def _look(self, issue: Issue) -> None:
        if issue.severity > Severity.INFO:
            self._note()

    def _note(self) -> None:
        """Keep the latest steps, once however many rules find something in one of them.

        What they show is worked out when somebody asks for it, and not inside of the training.
        """
        step = self._session.last_step
        if step == self._looked_at:
            return
        self._looked_at = step
        if len(self._waiting) >= _MOST_INCIDENTS:
            self._settle()
        if len(self._found) < _MOST_INCIDENTS:
            layers = self._layers
            self._waiting.append((layers.layout, layers.shared, tuple(layers.recent)))

    def _settle(self) -> None:
        """Work out how the incidents that were noted went through the layers."""
        waiting, self._waiting = self._waiting, []
        for snapshot in waiting:
            found = propagation_of(_framed(*snapshot))
            if found is None or len(self._found) >= _MOST_INCIDENTS:
                continue
            if self._is_new(found.layout, found.onsets[0]):
                self._found.append(found)

    def _is_new(self, layout: tuple[str, ...], origin: Onset) -> bool:
        key = (layout[origin.layer], origin.step, origin.quantity)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _frames(self) -> Frames:
        layers = self._layers
        return _framed(layers.layout, layers.shared, layers.recent)


def _framed(
    layout: tuple[str, ...], shared: Collection[int], recent: Iterable[tuple[int, Ranges]]
) -> Frames:
    """Return what each layer gave in each step, without the layers that have no one place."""
    alone = [place not in shared for place in range(len(layout))]

    def of(values: Sequence[float]) -> Sequence[float]:
        return tuple(compress(values, alone)) if shared else values

    frames = [
        Frame(
            step,
            of(largest(ranges, "out_min", "out_max")),
            of(largest(ranges, "grad_out_min", "grad_out_max")),
            of(ranges.get("out_min", ())),
            of(ranges.get("out_max", ())),
        )
        for step, ranges in recent
    ]
    return Frames(tuple(compress(layout, alone)), tuple(frames))


def trails_for(session: Session) -> Iterable[Trail]:
    """Return what follows the findings of a session; nothing where no layers are measured."""
    source = session.source
    if not any(map(session.selects, Trail.rules)) or not isinstance(source, Layered):
        return ()
    return (Trail(session, source),)

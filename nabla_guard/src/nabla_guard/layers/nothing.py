"""What stands in for the ranges of layers in light mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..facts import NumberFacts
    from ..loop.book import OptimizerRecord
    from ..loop.evidence import Again
    from ..loop.reading import StepReading
    from .here import Here

__all__ = ["NoLayers"]


class NoLayers:
    """Is told what :class:`.watch.LayerWatch` is told, and measures nothing.

    Attributes:
        measures: whether ranges are measured.
        unasked: whether it looks into every call of a root that is made with gradients.
        whole: whether every op is, so that it must know what runs.
        layout: names of the layers.
        ranges: the arrays of a step.
        recent: the latest steps with their arrays.
        shared: numbers of the layers that several others pass on to.
    """

    measures = whole = False
    unasked = True
    layout: tuple[str, ...] = ()
    ranges: Mapping[str, list[float]] = {}
    recent: Sequence[tuple[int, Mapping[str, list[float]]]] = ()
    shared: frozenset[int] = frozenset()

    def keep(self, steps: int) -> None:
        """See :class:`.watch.LayerWatch`."""

    def gatherer(self) -> Here | None:
        """See :class:`.watch.LayerWatch`."""
        return None

    def root_over(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def backward_begins(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def backward_runs(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def backward_over(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def cleared(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def step_begins(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def send(self) -> None:
        """See :class:`.watch.LayerWatch`."""

    def receive(self) -> Sequence[int]:
        """See :class:`.watch.LayerWatch`."""
        return ()

    def explain(
        self, odd: Sequence[int], record: OptimizerRecord, reading: StepReading, again: Again
    ) -> NumberFacts | None:
        """See :class:`.watch.LayerWatch`."""
        return None

    def forget(self) -> None:
        """See :class:`.watch.LayerWatch`."""

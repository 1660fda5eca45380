"""How far a validation loss rose from its minimum, and what such a rise is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..robust import mann_kendall, median, roughness

__all__ = ["Rise", "measure_rise", "wandering"]

_NOISES = 3.0
_TREND = 2.0
_SHARE = 0.2
"""Share of the progress that a rise must have undone to be worth a note."""
_LEARNT = 0.95
_NOTED = 0.05
"""Share of the minimum that a rise is worth a note at, where the model had learnt something."""
_UNLEARNT = 0.1
"""The same where the model never did better than untrained."""
_ALARMED = 0.12
_LOST = 1.1
"""Times the progress, or the minimum if that is less, by which a rise is an alarm: later models are
worse than the first one, or more than twice as bad as the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """A rise of the validation loss that is above its noise, and goes on.

    Attributes:
        size: from the valley around the minimum to the latest evaluations.
        noted: limit above which it is told.
        alarmed: limit above which it is an alarm.
    """

    size: float
    noted: float
    alarmed: float


def measure_rise(values: Sequence[float], place: int, start: float) -> Rise | None:
    """Return the rise since the minimum, or ``None`` where there is none worth a note.

    Args:
        values: the latest evaluations, in order.
        place: which of them is the least.
        start: level of the training loss at the start of the run.
    """
    # the least of noisy values is too low: its neighbours say where the minimum lies
    valley = median(values[max(0, place - 1) : place + 2])
    size = median(values[-3:]) - valley
    progress, level = abs(start - valley), abs(valley)
    least = _NOTED if valley < _LEARNT * start else _UNLEARNT
    noted = max(_SHARE * progress, least * level)
    if size <= noted:
        return None
    noted = max(noted, _NOISES * wandering(values[-20:]))
    if size <= noted or mann_kendall(values[place:][-12:]) <= _TREND:
        return None
    # the size of a loss that may be negative says nothing
    lost = _LOST * (min(progress, valley) if valley > 0.0 else progress)
    return Rise(size=size, noted=noted, alarmed=max(noted, lost, _ALARMED * level))


def wandering(values: Sequence[float]) -> float:
    """Return the noise of evaluations: from one to the next, or around their course."""
    steps = [abs(b - a) for a, b in zip(values, values[1:], strict=False)]
    return max(roughness(values), 0.7 * median(steps))

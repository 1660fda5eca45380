"""RUN106 and RUN503: a loss that swings."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from operator import sub

from nabla_core.issue import Issue, Quantity

from ..chart import BLOCK_ROWS, Chart, Moment
from ..robust import autocorrelation, median, median_residuals, spread
from ..rules.level import GROWING_OSCILLATION
from ..rules.samples import UNSHUFFLED
from .check import Check, Finding, verdict
from .echoes import changes_may_repeat, may_repeat

__all__ = ["WavesCheck"]

_EVERY_BLOCKS = 8
_WINDOW = 160
_HALF = 50
_SHORTEST = 10
_REPEATS = 0.7
"""An optimizer that rings on a full batch was seen to reach 0.66."""
_VALLEY = 0.1
"""Correlation somewhere before the period, at most."""
_AGAIN = 0.7
"""Share of that correlation which two periods must still have."""
_CHANGES_REPEAT = 0.6
"""Of an unshuffled epoch the small ups and downs come back too, of a ringing optimizer the swing
alone: 0.9 against 0.3 were seen."""
_SINE = 0.75
"""A swing that goes as far down as up is that of an optimizer which rings."""
_EXTREME = 4.0
"""Spreads of the changes at which they are cut off."""
_SAME = 0.85
_SMOOTH = 0.95
"""Where the changes come back so exactly, and neighbours differ by more than a swing of that length
lets them, it is the batches that come back: easy ones and hard ones in halves look like a swing."""
_ALIKE = 0.2
_HALF_ALIKE = 0.05
"""Of half as many rows, where that number is less certain."""
_ALTERNATES = -0.5
_GROWTH = 4.0


class WavesCheck(Check):
    """Looks at residuals once per eighty rows: of the last 160 for swings, of 320 for periods."""

    rules = (GROWING_OSCILLATION, UNSHUFFLED)
    first_block = _WINDOW // BLOCK_ROWS
    looks_back = False

    def __init__(self) -> None:
        self._told: set[str] = set()

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return (chart.block_count // _EVERY_BLOCKS + 1) * _EVERY_BLOCKS

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        if chart.block_count % _EVERY_BLOCKS or len(chart.losses) < _WINDOW or not chart.judged:
            return
        losses = list(chart.losses)[-_WINDOW:]
        if "period" not in self._told and chart.rows <= 1_000:
            yield from self._periodic(chart, list(chart.losses))
        if "swing" not in self._told:
            yield from self._swinging(chart, losses)

    def _periodic(self, chart: Chart, losses: list[float]) -> Iterable[Issue]:
        periods = range(_SHORTEST, len(losses) // 3)
        if not _is_worth_a_look(chart, losses, periods):
            return
        residuals = median_residuals(losses, _HALF)
        if autocorrelation(residuals, range(1, 2))[1] < _ALIKE:
            return
        found = autocorrelation(residuals, range(1, periods.stop))
        period = max(periods, key=lambda lag: found[lag])
        if found[period] < _REPEATS:
            return
        found |= autocorrelation(residuals, range(periods.stop, 2 * periods.stop))
        valley = min(found[lag] for lag in range(3, period))
        again = max(found[lag] for lag in (2 * period - 1, 2 * period, 2 * period + 1))
        if min(found[period], again / _AGAIN) < _REPEATS or valley > _VALLEY:
            return  # a wandering loss comes back once, not twice at the same distance
        changes = _clipped([after - before for before, after in pairwise(residuals)])
        alike = autocorrelation(changes, range(period, period + 1))[period]
        rings = valley < -_SINE * found[period] and (alike < _SAME or found[1] > _SMOOTH)
        if alike < _CHANGES_REPEAT or rings:
            return
        self._told.add("period")
        yield verdict(
            UNSHUFFLED,
            chart,
            Finding(
                message=f"The loss repeats itself every {period} rows with a correlation of "
                f"{found[period]:.2f} (limit {_REPEATS}), its changes from row to row with "
                f"{alike:.2f} (limit {_CHANGES_REPEAT}).",
                onset=Moment(0, 0),
                confidence=0.8,
                evidence={
                    "correlation": Quantity(value=found[period], limit=_REPEATS),
                    "changes": Quantity(value=alike, limit=_CHANGES_REPEAT),
                    "period": Quantity(value=period, unit="rows"),
                    "neighbours": Quantity(value=found[1], limit=_ALIKE),
                },
            ),
        )

    def _swinging(self, chart: Chart, losses: list[float]) -> Iterable[Issue]:
        if not _may_grow(losses):
            return
        residuals = median_residuals(losses, 5)
        third = len(residuals) // 3
        parts = [spread(residuals[i * third : (i + 1) * third], 0.0) for i in range(3)]
        alternation = autocorrelation(residuals[-third:], range(1, 2))[1]
        growing = parts[0] > 0.0 and parts[2] > _GROWTH * parts[0] and parts[1] > 1.5 * parts[0]
        if not growing or alternation > _ALTERNATES:
            return
        self._told.add("swing")
        yield verdict(
            GROWING_OSCILLATION,
            chart,
            Finding(
                message=f"The loss alternates from row to row (correlation {alternation:.2f}, "
                f"limit {_ALTERNATES}), and its swings grew {parts[2] / parts[0]:.3g} times in "
                f"{len(losses)} rows (limit {_GROWTH:g}).",
                onset=Moment(chart.now.row - 2 * third, chart.step - 2 * third * chart.stride),
                evidence={
                    "growth": Quantity(value=parts[2] / parts[0], limit=_GROWTH),
                    "alternation": Quantity(value=alternation, limit=_ALTERNATES),
                },
            ),
        )


def _is_worth_a_look(chart: Chart, losses: list[float], periods: range) -> bool:
    """Whether losses may repeat themselves, by looks that cost little."""
    half = len(losses) // 2
    if not _has_runs(losses[half:]) or not changes_may_repeat(losses, periods, _CHANGES_REPEAT):
        return False
    if not _has_runs(losses[:half]):
        return False
    levels = chart.block_losses(len(losses) // BLOCK_ROWS)
    return may_repeat(losses, levels, periods, _REPEATS, _VALLEY)


def _clipped(changes: list[float]) -> list[float]:
    """Return changes without their extremes: a few equal jumps say nothing of the rows between."""
    limit = _EXTREME * spread(changes, 0.0)
    return [min(max(change, -limit), limit) for change in changes]


def _has_runs(losses: list[float]) -> bool:
    """Whether neighbouring rows are alike: a cheap look, which the noise of most runs fails."""
    level = median(losses)
    rests = [loss - level for loss in losses]
    return autocorrelation(rests, range(1, 2))[1] >= _HALF_ALIKE


def _may_grow(losses: list[float]) -> bool:
    """Whether neighbours differ more at the end than at the start: a look before the costly one."""
    third = len(losses) // 3
    parts = (losses[:third], losses[-third:])
    first, last = (median(list(map(abs, map(sub, part[1:], part)))) for part in parts)
    return last > 2.0 * first

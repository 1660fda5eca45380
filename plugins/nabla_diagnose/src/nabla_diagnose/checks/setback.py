"""RUN104 for noisy runs that lose much and stay: forty rows against the ones before."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart
from ..robust import is_averaged, median, roughness, spread
from ..rules.level import LOSS_LEVEL_SHIFT
from .check import Finding, verdict

__all__ = ["find_setback"]

_AFTER = 4
_LAST = 6
_BEFORE = 24
_NOISES = 3.5
"""Noises of a block by which the lowest of the four is above the level before; good runs were seen
at 0.9 where they had learnt anything."""
_UNDONE = 0.6
_GAINED = 0.1
_GAINED_NOISES = 3.0
_FLOOR = 0.02
_RESTART_ROWS = 80
_OF_GUESSING = 0.05
_TELLING_ROWS = 240
_OTHERS = frozenset({"RUN104", "RUN105", "RUN109", "RUN201", "RUN204", "RUN503"})


def find_setback(chart: Chart) -> Iterable[Issue]:
    """Compare four blocks with the six before them, by a noise that no trend adds to.

    Single rows of a noisy run do not leave its level, and in a run that still falls the spread of
    many blocks is that of its progress.
    """
    if chart.found & _OTHERS:
        return ()
    levels = chart.block_losses(_BEFORE + _AFTER)
    before, after = levels[:-_AFTER], levels[-_AFTER:]
    if min(after) <= max(before[-_LAST:]) or min(levels) < 0.0:
        return ()  # a loss around zero may rise
    return _judge(chart, before, after)


def _judge(chart: Chart, before: list[float], after: list[float]) -> Iterable[Issue]:
    last = before[-_LAST:]
    level, half = median(last), _AFTER // 2
    noise = max(roughness(before), spread(last, level), _FLOOR * abs(level), 1e-12)
    gained = chart.start_level - level
    back, limit = min(median(after[:half]), median(after[half:])), level + _UNDONE * gained
    deviations = (min(after) - level) / noise
    if gained <= max(_GAINED * abs(chart.start_level), _GAINED_NOISES * noise):
        return
    if back <= limit or deviations <= _NOISES or _is_meant(chart, back - level):
        return
    since = chart.blocks[-_AFTER].start
    issue = verdict(
        LOSS_LEVEL_SHIFT,
        chart,
        Finding(
            message=f"From step {since.step} on the loss stands at {back:.4g} or more for "
            f"forty rows (limit {limit:.4g}), {deviations:.3g} deviations above its level of "
            f"{level:.4g} (limit {_NOISES:g}); the run started at {chart.start_level:.4g}.",
            onset=since,
            confidence=0.8,
            evidence={
                "deviations": Quantity(value=deviations, limit=_NOISES),
                "level_before": level,
                "level_after": back,
                "start": chart.start_level,
            },
        ),
    )
    yield from chart.doubts.consider(issue, since.row, chart.now.row)


def _is_meant(chart: Chart, rise: float) -> bool:
    """Whether something else explains a rise: another run, next to nothing, averages."""
    return (
        chart.now.row - chart.rewound_at < _RESTART_ROWS
        or rise < _OF_GUESSING * (chart.chance or 0.0)
        or is_averaged(chart.recent(_TELLING_ROWS)[: -10 * _AFTER])
    )

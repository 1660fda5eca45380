"""RUN105 where nothing jumped: a loss that came down, and is back where it started for good."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart
from ..robust import median, roughness
from ..rules.level import DIVERGENCE
from .check import Check, Finding, verdict

__all__ = ["LostProgressCheck"]

_AFTER = 10
"""Blocks that must all but one lie near the start again."""
_LEAST_BLOCKS = _AFTER + 4
_UNDONE = 0.75
_NOISES = 4.5
_SHARE = 0.2
"""Share of the start that the run had gained; less may be a start that was unlucky."""
_HALVES_NOISES = 2.4
"""Noises of a block by which each half of the last ten lies above the best five; of medians of five
that is four times their own noise. Good runs were seen at 1.5."""
_HALVES_SHARE = 0.15
_OTHERS = frozenset({"RUN104", "RUN105", "RUN109", "RUN201", "RUN204", "RUN304"})


class LostProgressCheck(Check):
    """Compares the last hundred rows with the best thirty and with the first ten.

    A loss that comes back over hundreds of rows never leaves its own level, and need not rise above
    its start: it is chance, often enough, that it comes back to.
    """

    rules = (DIVERGENCE,)
    first_block = _LEAST_BLOCKS
    looks_back = False

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        if chart.block_count < _LEAST_BLOCKS or not chart.judged or chart.found & _OTHERS:
            return ()
        limit = chart.best + _UNDONE * chart.progress  # the best three blocks are no lower
        if chart.blocks[-1].loss <= limit and chart.blocks[-2].loss <= limit:
            return ()  # what most blocks come to, without a look at the others
        if chart.doubts.denies(chart.blocks[-_AFTER].start.row):
            return ()
        levels = chart.block_losses()
        back = sorted(levels[-_AFTER:])[1]
        found = tuple(self._judge(chart, levels, back)) if back > limit else ()
        found = found or tuple(self._judge_halves(chart, levels))
        return found and (chart.doubts.release() or found)

    @staticmethod
    def _judge_halves(chart: Chart, levels: list[float]) -> Iterable[Issue]:
        """Compare medians of fifty rows, where single blocks say little."""
        half = _AFTER // 2
        back = min(median(levels[-half:]), median(levels[-_AFTER:-half]))
        start, earlier = chart.start_level, levels[:-_AFTER]
        if not _may_be_back(start, earlier, back, _HALVES_SHARE):
            return ()
        low = min(
            (median(earlier[place : place + half]) for place in range(len(earlier) - half + 1)),
            default=math.inf,
        )
        limit = max(low + _UNDONE * (start - low), low + _HALVES_NOISES * roughness(levels))
        if start - low <= _HALVES_SHARE * abs(start) or back <= limit:
            return ()
        if min(levels) < 0.0:
            return ()  # around zero a share of the start says nothing: policies, critics
        if chart.rewound_at > chart.best_at.row:
            return ()
        return (_is_back(chart, (low, back, limit), "its medians of fifty have"),)

    @staticmethod
    def _judge(chart: Chart, levels: list[float], back: float) -> Iterable[Issue]:
        start, earlier = chart.start_level, levels[:-_AFTER]
        if not _may_be_back(start, earlier, back, _SHARE):
            return
        lows = [median(earlier[place : place + 3]) for place in range(1, len(earlier) - 2)]
        if not lows:
            return
        low = min(lows)
        gained, limit = start - low, low + _UNDONE * (start - low)
        least = max(_NOISES * roughness(levels), _SHARE * abs(start))
        if gained <= least or back <= limit or chart.rewound_at > chart.best_at.row:
            return
        yield _is_back(chart, (low, back, limit), "it has")


def _may_be_back(start: float, earlier: list[float], back: float, share: float) -> bool:
    """Whether medians of blocks, which are no lower than the lowest block, could show a loss."""
    gained = start - min(earlier)
    return gained > share * abs(start) and back > start - (1.0 - _UNDONE) * gained


def _is_back(chart: Chart, losses: tuple[float, float, float], what: str) -> Issue:
    low, back, limit = losses
    start, since = chart.start_level, chart.blocks[-_AFTER].start
    return verdict(
        DIVERGENCE,
        chart,
        Finding(
            message=f"The loss came down from {start:.4g} to {low:.4g} and is back: for a hundred "
            f"rows, from step {since.step} on, {what} not been below {back:.4g} (limit "
            f"{limit:.4g}).",
            onset=since,
            confidence=0.8,
            evidence={
                "loss": Quantity(value=back, limit=limit),
                "start": start,
                "best": low,
            },
        ),
    )

"""RUN104 for noisy runs: rows that are back where the run started, and learn it all again."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import BLOCK_ROWS, Chart
from ..robust import is_averaged, median, spread
from ..rules.level import LOSS_LEVEL_SHIFT
from .check import Check, Finding, verdict
from .setback import find_setback

__all__ = ["RelapseCheck"]

_BEFORE = 24
_LEAST_BLOCKS = 14
_FIRST = 3.5
_SECOND = 2.5
"""Spreads of blocks by which the two blocks stand out; the second has learnt something again."""
_BACK = (0.8, 0.6)
"""Shares of the progress that the two blocks have undone at least."""
_FLOOR = 0.02
_RESTART_ROWS = 80
_OF_GUESSING = 0.05
_TELLING_ROWS = 220
"""So many rows tell averages from single rows."""


class RelapseCheck(Check):
    """Compares two blocks with all of the 24 before them, not the rows with their own noise.

    Weights that were reset lose everything in one row, and win it back within some forty: too fast
    for a level that stays, and in a noisy run too little for single rows.
    """

    rules = (LOSS_LEVEL_SHIFT,)
    first_block = _LEAST_BLOCKS
    looks_back = False

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        blocks = chart.blocks
        if chart.block_count < _LEAST_BLOCKS or blocks[-1].loss <= blocks[-5].loss:
            return ()  # what most blocks come to
        if not chart.judged or LOSS_LEVEL_SHIFT.id in chart.found:
            return ()
        if min(blocks[-2].loss, blocks[-3].loss) > blocks[-6].loss:
            found = tuple(find_setback(chart))
            if found:
                return found
        if not chart.rises:
            return ()
        first, second = chart.blocks[-2].loss, chart.blocks[-1].loss
        if min(first, second) <= max(chart.blocks[-3].loss, chart.blocks[-4].loss):
            return ()
        return self._judge(chart, chart.block_losses(_BEFORE + 2)[:-2], (first, second))

    @staticmethod
    def _judge(chart: Chart, before: list[float], after: tuple[float, float]) -> Iterable[Issue]:
        level = median(before)
        noise = max(spread(before, level), _FLOOR * abs(level), 1e-12)
        progress = chart.start_level - level
        limits = [
            level + max(noises * noise, share * progress)
            for noises, share in zip((_FIRST, _SECOND), _BACK, strict=True)
        ]
        if progress <= 0.0 or min(after) <= max(before):
            return
        if after[0] <= limits[0] or after[1] <= limits[1] or _is_meant(chart, after[0] - level):
            return
        since = chart.blocks[-2].start
        issue = verdict(
            LOSS_LEVEL_SHIFT,
            chart,
            Finding(
                message=f"From step {since.step} on the loss is back at {after[0]:.4g} for ten "
                f"rows (limit {limits[0]:.4g}) and at {after[1]:.4g} for the next ten (limit "
                f"{limits[1]:.4g}); it stood at {level:.4g} and started at "
                f"{chart.start_level:.4g}.",
                onset=since,
                confidence=0.8,
                evidence={
                    "loss": Quantity(value=after[0], limit=limits[0]),
                    "level_before": level,
                    "start": chart.start_level,
                },
            ),
        )
        yield from chart.doubts.consider(issue, since.row, chart.now.row)


def _is_meant(chart: Chart, rise: float) -> bool:
    """Whether something else explains a rise: another run, averages, next to nothing, a rate."""
    return (
        chart.now.row - chart.rewound_at < _RESTART_ROWS
        or chart.options.batch_size == 1
        or rise < _OF_GUESSING * (chart.chance or 0.0)
        or bool(chart.found & {"RUN105", "RUN201", "RUN204", "RUN503"})
        or is_averaged(chart.recent(_TELLING_ROWS)[: -2 * BLOCK_ROWS])
    )

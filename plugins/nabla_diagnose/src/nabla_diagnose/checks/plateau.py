"""RUN107 and RUN507: a loss that never leaves its start."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

from ..chart import Chart, Moment
from ..robust import mann_kendall, median, roughness
from ..rules.samples import LABELS_UNINFORMATIVE
from ..rules.trend import PLATEAU
from .check import Check, Finding, verdict

__all__ = ["PlateauCheck"]

_BLOCKS = 20
_EVERY = 5
_NEAR = 0.04
_BELOW = 0.01
"""What a model gains that has learnt how frequent the classes are, and nothing else."""
_MOVED = 0.15
_TREND = 2.0
_FAR = 1.0
_HIGH = 1.5
"""Times guessing: a first loss, or a level, above it is one of other units."""
_WHOLE_ROWS = 40
_SAMPLES = 1_000
"""Seen in all, where the size of a batch is declared; rows of two samples teach very little."""


class PlateauCheck(Check):
    """Reports a loss at the level of guessing, and at the end one without any trend."""

    rules = (PLATEAU, LABELS_UNINFORMATIVE)
    first_block = _BLOCKS

    def __init__(self) -> None:
        self._told = False

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return max(_BLOCKS, (chart.block_count // _EVERY + 1) * _EVERY)

    def block(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        count = chart.block_count
        self.done = self._told or chart.chance is None or count > 64
        if self._told or chart.chance is None or count < _BLOCKS or count > 64 or count % _EVERY:
            return ()
        planned = chart.options.planned_steps
        if planned and chart.step < 0.3 * planned:
            return ()
        if 0 < chart.options.batch_size * chart.rows < _SAMPLES:
            return ()
        return self._at_chance(chart, chart.chance)

    def _at_chance(self, chart: Chart, chance: float) -> Iterable[Issue]:
        levels = chart.block_losses(_BLOCKS)
        moved = chart.distance if "update_ratio" in chart.seen else None
        if moved is not None and moved > _FAR and _is_never_below(chart, levels, chance):
            self._told = True
            yield self._never_below(chart, levels, (chance, moved))
            return
        if not _rests(levels, chance) or (moved is not None and moved < _MOVED):
            return
        if min(chart.block_losses()) < (1.0 - _NEAR) * chance - 2.0 * roughness(levels):
            return  # it had left guessing before: other rules say what brought it back
        if chart.found & {"RUN206", "RUN202", "RUN205"}:
            return
        self._told = True
        apart = abs(median(levels) - chance) / chance
        yield self._plateau(
            chart,
            f"The loss shows no progress in {chart.rows} rows: the last {_BLOCKS} blocks of ten "
            f"rows lie around {median(levels):.4g}, within {apart:.2g} of the loss of guessing, "
            f"{chance:.4g} (limit {_NEAR}).",
            {"distance_from_guessing": Quantity(value=apart, limit=_NEAR), "guessing": chance},
        )
        if moved is not None:
            yield verdict(
                LABELS_UNINFORMATIVE,
                chart,
                Finding(
                    message=f"The steps moved the parameters by up to {moved:.2g} times their "
                    f"size (limit {_MOVED}) without any gain over guessing.",
                    onset=Moment(0, 0),
                    confidence=0.6,
                    evidence={"moved": Quantity(value=moved, limit=_MOVED)},
                ),
            )

    def _never_below(self, chart: Chart, levels: list[float], known: tuple[float, float]) -> Issue:
        chance, moved = known
        return self._plateau(
            chart,
            f"Not one of the last {_BLOCKS} blocks of ten rows has a loss below that of guessing, "
            f"{chance:.4g} (limit), their median is {median(levels):.4g}, and the steps moved the "
            f"parameters by {moved:.3g} times their size (limit {_FAR:g}).",
            {"least": Quantity(value=min(levels), limit=chance), "moved": moved},
        )

    def finish(self, chart: Chart) -> Iterable[Issue]:
        """Say of a whole run without trend that it has none; the log cannot say why."""
        if self._told or chart.found or not chart.judged or chart.broken is not None:
            return
        if chart.rows < _WHOLE_ROWS or not chart.block_count:
            return
        levels = chart.block_losses()
        tail = median(levels[-2:]) if len(levels) > 1 else levels[-1]
        noise = max(roughness(list(chart.losses)), 1e-12)
        gain = chart.start_level - tail
        if abs(gain) > noise or abs(mann_kendall(levels)) > _TREND:
            return
        self._told = True
        yield self._plateau(
            chart,
            f"The loss went from {chart.start_level:.4g} to {tail:.4g} in {chart.rows} rows, less "
            f"than its noise of {noise:.2g}; the log does not show why.",
            {"gain": Quantity(value=gain, limit=noise)},
            Severity.INFO,
        )

    @staticmethod
    def _plateau(
        chart: Chart,
        message: str,
        evidence: dict[str, Quantity | float],
        severity: Severity | None = None,
    ) -> Issue:
        return verdict(
            PLATEAU,
            chart,
            Finding(
                message=message,
                onset=Moment(0, chart.blocks[0].start.step if chart.block_count <= 64 else 0),
                severity=severity,
                confidence=0.8,
                evidence=dict(evidence),
            ),
        )


def _is_never_below(chart: Chart, levels: list[float], chance: float) -> bool:
    """Whether a run that started near guessing only ever got worse answers than that."""
    level, high = median(levels), _HIGH * chance
    return (
        min(chart.block_losses()) > chance
        and level >= chart.start_level
        and max(level, chart.start_level) < high
        and mann_kendall(levels) > -_TREND
        and not chart.found & {"RUN105", "RUN109", "RUN201", "RUN206", "RUN207", "RUN409"}
    )


def _rests(levels: list[float], chance: float) -> bool:
    """Whether blocks lie around the loss of guessing, or a little above it, and do not fall.

    Where their noise hides as much as the limit, nothing can be said. A loss that came down onto
    guessing before them has learnt nothing: the model only became less sure of wrong answers.
    """
    half = len(levels) // 2
    parts = [median(levels[:half]), median(levels[half:])]
    unsure = 1.25 * roughness(levels) / half**0.5
    near = max(parts) < chance * (1.0 + _NEAR) and min(parts) > chance - max(
        _BELOW * chance, unsure
    )
    return near and unsure < 0.5 * _NEAR * chance and mann_kendall(levels) > -_TREND

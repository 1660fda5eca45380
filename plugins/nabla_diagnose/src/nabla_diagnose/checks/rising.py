"""RUN105 and RUN109: the loss leaves its start upwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from nabla_core.issue import Issue, Quantity

from ..calm import Calm
from ..chart import BLOCK_ROWS, Chart, Moment
from ..doubts import is_harder_task
from ..robust import comes_back, mann_kendall, median
from ..rules.level import DIVERGENCE, WRONG_LOSS_SIGN
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["RisingCheck"]

_SMALL_STEP = 0.1
_NOISES = 10.0
_FIRST_BLOCK = 7
_LAST_BLOCK = 40
_FADES = 0.7
"""Share of the rise of a first half that the second one has at least, in a climb."""
_PATIENCE_ROWS = 30
"""A loss that comes back is waited for so long: of one bad batch, averages keep a trace."""
_OF_GUESSING = 0.05
_TELLING_ROWS = 200
_YOUNG_ROWS = 60
_ABOVE_GUESSING = 2.0
_OWN_NOISE = 1.5
"""Noises of a row by which the medians of three differ anyway, somewhere in a run."""
_RUNAWAY = 10.0
_RUNAWAY_ROWS = 3
"""Rows on the way to a loss that is not finite, the last one so many times above the limit."""
_ONE_JUMP = 0.6
"""Share of a rise that one jump may have; a climb speeds up, but from row to row."""


class RisingCheck(Check):
    """Follows a loss above its start; small steps and no progress before make it a wrong sign."""

    rules = (DIVERGENCE, WRONG_LOSS_SIGN)
    first_block = _FIRST_BLOCK

    def __init__(self) -> None:
        self._since: Moment | None = None
        self._above = 0
        self._largest = 0.0
        self._told: set[str] = set()

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss = chart.loss
        if loss is None or chart.rows < BLOCK_ROWS or not chart.judged:
            return ()
        if chart.broken is not None:
            return self._broke(chart) if self._above else ()
        if self._above == 0 and chart.update is not None:
            self._largest = max(self._largest, chart.update)
        limit = _limit(chart)
        if loss <= limit:
            self._above = 0
            return ()
        if self._above == 0:
            self._since = chart.now
        self._above += 1
        if self._above < 5:
            return ()
        self.done = "divergence" in self._told and (
            "sign" in self._told or self._largest > _SMALL_STEP
        )
        return self._climbed(chart) if self._above == 5 else self._diverged(chart, limit)

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        if not chart.judged or not chart.block_count:
            return True
        calm.at_most("loss", _limit(chart))
        return self._above == 0

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        if chart.judged and chart.block_count:
            self._largest = max(self._largest, stretch.highest("update_ratio", 0.0))

    def needs_rest(self, chart: Chart) -> bool:
        """See :class:`Check`; how large the steps were matters where the loss climbs."""
        return chart.block_count >= _FIRST_BLOCK and _climbs(chart)

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        count = chart.block_count
        if not chart.judged or chart.update is None or count >= _LAST_BLOCK:
            return math.inf
        if chart.best <= chart.start_level - chart.start_noise:
            return math.inf  # a loss that has fallen so far has not only risen
        blocks = chart.blocks
        falls = len(blocks) > 1 and blocks[-1].loss <= blocks[-2].loss
        return max(_FIRST_BLOCK, count + 2 if falls else 0)

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Report a slow climb: every block above the one before, from the first on."""
        if (
            not _FIRST_BLOCK <= chart.block_count <= _LAST_BLOCK
            or "sign" in self._told
            or not chart.judged
        ):
            return
        if chart.update is None or self._largest > _SMALL_STEP or not _climbs(chart):
            return
        levels = chart.block_losses()
        if levels[-1] < max(levels):
            return
        noise = max(chart.noise(), chart.start_noise) / BLOCK_ROWS**0.5
        rise = levels[-1] - levels[0]
        if (
            rise > 6.0 * noise
            and min(levels) > chart.start_level - min(2.0 * noise, chart.start_noise)
            and mann_kendall(levels) > 3.0
            and not _slows_down(levels)
            and not _jumped(chart, rise)
        ):
            yield self._wrong_sign(chart, rise, Moment(0, chart.blocks[0].start.step))

    def _broke(self, chart: Chart) -> Iterable[Issue]:
        """A loss that was no longer finite soon after it had left its start."""
        yield from self._climbed(chart)
        above, self._above = self._above, 0
        if "divergence" in self._told or above < _RUNAWAY_ROWS or self._since is None:
            return
        level, limit = chart.recent(1)[0], _limit(chart)
        if level <= _RUNAWAY * limit:
            return
        self._told.add("divergence")
        yield self._divergence(
            chart,
            (level, limit),
            f"The loss rose for {above} rows, from step {self._since.step} on, to {level:.4g}, and "
            f"was not finite after that; it started at {chart.start_level:.4g} (limit "
            f"{limit:.4g}).",
        )

    def _climbed(self, chart: Chart) -> Iterable[Issue]:
        """A loss that doubled under small steps, without any progress before, was climbed."""
        improved = chart.start_level - chart.best if chart.block_count else 0.0
        small = "update_ratio" in chart.seen and self._largest <= _SMALL_STEP
        if "sign" in self._told or not small or not self._rose_before(chart):
            return
        if improved > min(chart.start_noise, 0.1 * abs(chart.start_level)):
            return
        rise = median(chart.recent(3)) - chart.start_level
        if chart.found & {"RUN201", "RUN204", "RUN304"} or _jumped(chart, rise):
            return
        yield self._wrong_sign(chart, rise, Moment(0, 0))

    def _rose_before(self, chart: Chart) -> bool:
        """Whether the rows before the loss left its start were above that start already."""
        if self._since is None or self._since.row <= 5:
            return False
        rows = chart.recent(chart.now.row - self._since.row + 16)[:15]
        return median(rows) > chart.start_level + 0.3 * chart.start_noise

    def _wrong_sign(self, chart: Chart, rise: float, onset: Moment) -> Issue:
        self._told.add("sign")
        return verdict(
            WRONG_LOSS_SIGN,
            chart,
            Finding(
                message=f"The loss rose by {rise:.4g} from {chart.start_level:.4g} without ever "
                f"falling, while no step changed the parameters by more than {self._largest:.2g} "
                f"of their size (limit {_SMALL_STEP}).",
                onset=onset,
                confidence=0.8,
                evidence={
                    "rise": rise,
                    "start": chart.start_level,
                    "update_ratio": Quantity(value=self._largest, limit=_SMALL_STEP),
                },
            ),
        )

    def _diverged(self, chart: Chart, limit: float) -> Iterable[Issue]:
        if self._above < 8 or "divergence" in self._told or self._since is None:
            return
        rows = chart.recent(self._above + _TELLING_ROWS)
        waits = self._above < _PATIENCE_ROWS
        if waits and comes_back(rows[: -self._above], rows[-self._above :]):
            return
        level = median(rows[-8:])
        chance = chart.chance or 0.0
        if level - chart.start_level < _OF_GUESSING * chance:
            return  # next to guessing, a rise from next to nothing is nothing
        if waits and chart.rows < _YOUNG_ROWS and level < _ABOVE_GUESSING * chance:
            return  # no worse than guessing: the first batches may have been of one kind
        self._told.add("divergence")
        if is_harder_task((chart.start_level, level), tuple(chart.gradients), self._above):
            return  # RUN104 says so
        yield self._divergence(
            chart,
            (level, limit),
            f"The loss stands at {level:.4g} for {self._above} rows, from step "
            f"{self._since.step} on; it started at {chart.start_level:.4g} (limit {limit:.4g}).",
        )

    def _divergence(self, chart: Chart, loss: tuple[float, float], message: str) -> Issue:
        level, limit = loss
        return verdict(
            DIVERGENCE,
            chart,
            Finding(
                message=message,
                onset=self._since or chart.now,
                evidence={
                    "loss": Quantity(value=level, limit=limit),
                    "start": chart.start_level,
                    "best": chart.best if chart.block_count else chart.start_level,
                },
            ),
        )


def _jumped(chart: Chart, rise: float) -> bool:
    """Whether most of a rise came from one row to the next: other data came, nobody climbed."""
    rows = chart.recent(chart.rows)
    levels = [median(rows[place : place + 3]) for place in range(0, len(rows) - 2, 3)]
    highest = max((b - a for a, b in pairwise(levels)), default=0.0)
    return highest - _OWN_NOISE * chart.noise(60) > _ONE_JUMP * rise


def _climbs(chart: Chart) -> bool:
    """Whether each of the last two blocks is above the one before."""
    blocks = chart.blocks
    return blocks[-1].loss > blocks[-2].loss > blocks[-3].loss


def _slows_down(levels: list[float]) -> bool:
    """Whether a rise fades: an average that began with an easy batch comes up to its level so."""
    middle = levels[len(levels) // 2]
    return levels[-1] - middle < _FADES * (middle - levels[0])


def _limit(chart: Chart) -> float:
    """Return the loss above which the run has left its start upwards."""
    return chart.start_level + max(
        abs(chart.start_level), _NOISES * chart.start_noise, chart.progress
    )

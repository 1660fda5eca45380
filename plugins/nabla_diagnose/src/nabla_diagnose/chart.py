"""The course of one run in bounded memory: what all checks look at.

A row is one record with a loss. Rows are kept in rings of 320 and condensed into blocks of ten, of
which 64 are kept; the start of the run is kept for good. Nothing here judges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import mul, sub
from typing import NamedTuple

from nabla_core.records import StepRecord

from .doubts import Doubts
from .level import CALM_ROWS, Level
from .options import DiagnoseOptions
from .robust import median, roughness
from .stretch import Stretch

__all__ = [
    "BLOCK_ROWS",
    "Block",
    "Chart",
    "Moment",
    "is_other_loss",
    "is_rival",
]

BLOCK_ROWS = 10
_HALF = BLOCK_ROWS // 2
_KEPT_ROWS = 320
_KEPT_BLOCKS = 64
_KEPT_UPDATES = 40
_FAR = 1_000
"""Steps between two rows for which an update counts at most."""
_RIVALS = frozenset({"d_loss", "g_loss", "reward", "return", "episode_return", "entropy", "kl"})
"""Signals of losses that may rise in a good run: adversaries, policies, annealed terms."""


class Moment(NamedTuple):
    """A row of the log: its number, from 0, and its optimizer step."""

    row: int
    step: int


class Block(NamedTuple):
    """Ten rows.

    Attributes:
        start: its first row.
        loss: median loss.
    """

    start: Moment
    loss: float


class Chart:
    """What is known of a run so far.

    Args:
        options: what the user declared about the run.

    Attributes:
        progress: how far the best block is below the start; never negative.
        rest_rows: rows of which all is known, not their loss alone.
    """

    progress = 0.0
    first_spread: float | None = None  # of the last layer's outputs, when first measured
    most_changed: tuple[str, float] | None = None  # layer that stands out in the latest measurement

    def __init__(self, options: DiagnoseOptions) -> None:
        self.options = options
        self.judged = options.loss != "custom"
        self.signals: Mapping[str, float] = {}
        self.found: set[str] = set()
        self.seen: set[str] = set()
        self.other_losses: tuple[str, ...] = ()
        self.rows = self.rest_rows = self.block_count = self.step = self.recorded_step = 0
        self.loss: float | None = None
        self.grad_norm: float | None = None
        self.update: float | None = None
        self.lr: float | None = None
        self.broken: Moment | None = None
        self.first: list[float] = []
        self.start_level = self.start_noise = 0.0
        self.losses: deque[float] = deque(maxlen=_KEPT_ROWS)
        self.gradients: deque[float] = deque(maxlen=CALM_ROWS + 1)
        self.updates: deque[float] = deque(maxlen=_KEPT_UPDATES)
        self.blocks: deque[Block] = deque(maxlen=_KEPT_BLOCKS)
        self.level: Level | None = None
        self.best, self.best_at, self._distance = math.inf, Moment(0, 0), 0.0
        # whether the last two blocks are both above the one before
        self.rises, self._latest = False, (math.inf, math.inf)
        self._unpaid: list[tuple[Sequence[float], Sequence[int], int]] = []
        self.shrinking, self.doubts = False, Doubts()
        self.rewound_at, self._gap = -_KEPT_ROWS, 1
        self._calm: deque[list[float]] = deque(maxlen=CALM_ROWS // BLOCK_ROWS)
        self._ordered: deque[list[float]] = deque(maxlen=CALM_ROWS // BLOCK_ROWS)
        self._block_losses: list[float] = []
        self._block_start = self.now

    # ------------------------------------------------------------------ facts in
    def take(self, record: StepRecord) -> bool:
        """Take a record in; return whether it completed a block."""
        signals = record.signals
        self.signals, self.recorded_step = signals, record.step
        if len(signals) != len(self.seen) or not self.seen.issuperset(signals):
            self.seen.update(signals)
            self.judged = self.judged and not (_RIVALS & signals.keys())
            self.other_losses = tuple(filter(is_other_loss, self.seen))
        self.lr = signals.get("lr", self.lr)
        self.update = signals.get("update_ratio")
        self.grad_norm = signals.get("grad_norm")
        self.loss = loss = signals.get("loss")
        if loss is None:
            return False
        self._move(record.step)
        self._take_update()
        if not math.isfinite(loss):
            self.broken = self.broken or self.now
            return False
        self.losses.append(loss)
        if self.grad_norm is not None and 0.0 < self.grad_norm < math.inf:
            self.gradients.append(self.grad_norm)
        if len(self.first) < BLOCK_ROWS:
            self._take_start((loss,))
        if not self._block_losses:
            self._block_start = self.now
        self._block_losses.append(loss)
        if len(self._block_losses) < BLOCK_ROWS:
            return False
        self._close_block()
        return True

    def take_losses(
        self, steps: Sequence[int], losses: Sequence[float], last: Mapping[str, float]
    ) -> bool:
        """Take the losses of calm rows in, which end within the present block; return whether they
        completed it. The rest is owed.

        Args:
            steps: ``[T]``, at least one.
            losses: ``[T]``, of them.
            last: what the last row has, known signals only.
        """
        step = steps[-1]
        self.lr, self.loss = last.get("lr", self.lr), losses[-1]
        self.update, self.grad_norm = last.get("update_ratio"), last.get("grad_norm")
        if not self._block_losses:
            self._block_start = Moment(self.rows, steps[0])
        self._gap = step - (steps[-2] if len(steps) > 1 else self.step)
        self.rows += len(losses)
        self.step = self.recorded_step = step
        self.losses.extend(losses)
        if len(self.first) < BLOCK_ROWS:
            self._take_start(losses)
        self._block_losses += losses
        if len(self._block_losses) < BLOCK_ROWS:
            return False
        self._close_block()
        return True

    def take_rest(self, stretch: Stretch, before: int) -> None:
        """Take in what is owed of rows whose losses were taken: the chart is then as if each row
        had been.

        Args:
            stretch: the rows.
            before: step of the row before them.
        """
        columns = stretch.columns
        self.rest_rows += len(stretch.steps)
        self.signals = {name: values[-1] for name, values in columns.items()}
        if "update_ratio" in columns:
            self.updates.extend(columns["update_ratio"][-_KEPT_UPDATES:])
            self._unpaid.append((columns["update_ratio"], stretch.steps, before))
            if len(self._unpaid) == _KEPT_BLOCKS:
                self._pay()
        if "grad_norm" in columns:
            norms = columns["grad_norm"]
            if min(norms) <= 0.0:
                norms = [norm for norm in norms if norm > 0.0]
            self.gradients.extend(norms[-CALM_ROWS - 1 :])

    def room(self) -> int:
        """Return how many rows the present block still takes; one less of the first block.

        The row that completes it stands alone: with it the start of the run is known.
        """
        room = BLOCK_ROWS - len(self._block_losses)
        return room if self.block_count else max(1, room - 1)

    def is_beginning(self) -> bool:
        """Whether the next row is the first one, or completes the first block."""
        return not self.block_count and len(self._block_losses) in (0, BLOCK_ROWS - 1)

    # ------------------------------------------------------------------ what is known
    @property
    def now(self) -> Moment:
        """The current row, or the last one before a record without a loss."""
        return Moment(self.rows - 1, self.step)

    @property
    def chance(self) -> float | None:
        """The loss of guessing, in nats, where the declared loss has one."""
        options = self.options
        if options.loss == "cross_entropy" and options.classes > 1:
            return math.log(options.classes)
        return math.log(2.0) if options.loss == "bce_with_logits" else None

    @property
    def distance(self) -> float:
        """Sum of the updates so far, each as many times as steps had it."""
        if self._unpaid:
            self._pay()
        return self._distance

    @property
    def stride(self) -> int:
        """Optimizer steps from one row to the next, as last seen."""
        return self._gap

    def recent_gradients(self, rows: int) -> list[float]:
        """Return the latest gradient norms above zero, without the present row's."""
        latest = list(self.gradients)
        return latest[-rows - 1 : -1] if self.grad_norm is not None else latest[-rows:]

    def recent(self, rows: int) -> list[float]:
        """Return the latest losses, at most ``rows`` of them."""
        return list(self.losses)[-rows:]

    def noise(self, rows: int = 40) -> float:
        """Return the noise of the latest losses from row to row, floored at 1e-3 of the level."""
        latest = self.recent(rows)
        floor = 1e-3 * abs(median(latest)) if latest else 0.0
        return max(roughness(latest), floor, 1e-12)

    def block_losses(self, latest: int = _KEPT_BLOCKS) -> list[float]:
        """Return the medians of the latest blocks, by default of all that are kept."""
        blocks = self.blocks
        return [blocks[place].loss for place in range(-min(latest, len(blocks)), 0)]

    # ------------------------------------------------------------------ private
    def _move(self, step: int) -> None:
        if self.rows and step <= self.step:
            self.rewound_at = self.rows
        elif self.rows:
            self._gap = step - self.step
        self.step = step
        self.rows += 1
        self.rest_rows = self.rows

    def _take_update(self) -> None:
        if self.update is not None and math.isfinite(self.update):
            self.updates.append(self.update)
            self._distance = self.distance + self.update * min(self._gap, _FAR)

    def _pay(self) -> None:
        for updates, steps, before in self._unpaid:
            weighted: Iterable[float] = updates
            if steps[-1] - before != len(steps):  # not one step a row
                gaps = map(min, map(sub, steps, chain((before,), steps)), repeat(_FAR))
                weighted = map(mul, updates, gaps)
            # in the order of the rows, as one by one: sum() may add up in another way
            sums = accumulate(weighted, initial=self._distance)
            self._distance = deque(sums, maxlen=1)[0]
        self._unpaid = []

    def _take_start(self, losses: Sequence[float]) -> None:
        self.first += losses
        self.start_level = median(self.first)
        self.start_noise = max(roughness(self.first), 0.03 * abs(self.start_level), 1e-12)

    def _close_block(self) -> None:
        losses = self._block_losses
        ordered = sorted(losses)
        loss = 0.5 * (ordered[_HALF - 1] + ordered[_HALF])
        self.blocks.append(Block(self._block_start, loss))
        self.block_count += 1
        self._calm.append(losses)
        self._ordered.append(ordered)
        if self.block_count >= CALM_ROWS // BLOCK_ROWS:
            self.level = Level(tuple(self._calm), tuple(self._ordered))
        before, previous = self._latest
        self._latest, self.rises = (previous, loss), before < min(previous, loss)
        if loss < self.best:
            self.best, self.best_at = loss, self._block_start
            self.progress = max(0.0, self.start_level - loss)
        self._block_losses = []


def is_rival(name: str) -> bool:
    """Whether a signal shows that the training loss may rise in a good run."""
    return name in _RIVALS


@lru_cache(maxsize=512)
def is_other_loss(name: str) -> bool:
    """Whether a signal is a loss that is not the training loss: a part, a player's, held out."""
    return name != "loss" and (name.startswith("loss/") or "_loss" in f"_{name}".partition("/")[0])

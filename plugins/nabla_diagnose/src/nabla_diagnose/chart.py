"""The course of one run in bounded memory: what all checks look at.

A row is one record with a loss. Rows are kept in rings of 320 and condensed into blocks of ten, of
which 64 are kept; the start of the run is kept for good. Nothing here judges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from nabla_core.records import StepRecord

from .options import DiagnoseOptions
from .robust import median, roughness, spread

__all__ = ["BLOCK_ROWS", "CALM_ROWS", "Block", "Chart", "Level", "Moment"]

BLOCK_ROWS = 10
CALM_ROWS = 40
_KEPT_ROWS = 320
_KEPT_BLOCKS = 64
_RIVALS = frozenset({"d_loss", "g_loss", "reward", "return", "episode_return", "entropy", "kl"})
"""Signals of losses that may rise in a good run: adversaries, policies, annealed terms."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A row of the log: its number, from 0, and its optimizer step."""

    row: int
    step: int


@dataclass(frozen=True, slots=True)
class Level:
    """Where the losses of the last forty rows lie, as of the last completed block."""

    median: float
    spread: float
    roughness: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Medians over ten rows; ``None`` for what was not logged in any of them.

    Attributes:
        start: its first row.
        loss: median loss.
        grad_norm: median gradient norm.
        update: median update ratio.
        lr: last learning rate.
    """

    start: Moment
    loss: float
    grad_norm: float | None
    update: float | None
    lr: float | None


class Chart:
    """What is known of a run so far.

    Args:
        options: what the user declared about the run.
    """

    def __init__(self, options: DiagnoseOptions) -> None:
        self.options = options
        self.judged = options.loss != "custom"
        self.signals: Mapping[str, float] = {}
        self.found: set[str] = set()
        self.seen: set[str] = set()
        self.now = Moment(-1, 0)
        self.rows = 0
        self.loss: float | None = None
        self.grad_norm: float | None = None
        self.update: float | None = None
        self.lr: float | None = None
        self.broken: Moment | None = None
        self.first: list[float] = []
        self.start_level = self.start_noise = 0.0
        self.losses: deque[float] = deque(maxlen=_KEPT_ROWS)
        self.gradients: deque[float] = deque(maxlen=_KEPT_ROWS)
        self.updates: deque[float] = deque(maxlen=40)
        self.blocks: deque[Block] = deque(maxlen=_KEPT_BLOCKS)
        self.block_count = 0
        self.level: Level | None = None
        self.best = math.inf
        self.best_at = Moment(0, 0)
        self.distance = 0.0
        self.shrinking = False
        self.rewound_at = -_KEPT_ROWS
        self._gap = 1
        self._clear_block()

    # ------------------------------------------------------------------ facts in
    def take(self, record: StepRecord) -> bool:
        """Take a record in; return whether it completed a block."""
        signals = record.signals
        self.signals = signals
        if len(signals) != len(self.seen) or not self.seen.issuperset(signals):
            self.seen.update(signals)
            self.judged = self.judged and not (_RIVALS & signals.keys())
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
            self._block_gradients.append(self.grad_norm)
        if len(self.first) < BLOCK_ROWS:
            self._take_start(loss)
        if not self._block_losses:
            self._block_start = self.now
        self._block_losses.append(loss)
        if len(self._block_losses) < BLOCK_ROWS:
            return False
        self._close_block()
        return True

    # ------------------------------------------------------------------ what is known
    @property
    def step(self) -> int:
        """Optimizer step of the current row."""
        return self.now.step

    @property
    def chance(self) -> float | None:
        """The loss of guessing, in nats, where the declared loss has one."""
        options = self.options
        if options.loss == "cross_entropy" and options.classes > 1:
            return math.log(options.classes)
        return math.log(2.0) if options.loss == "bce_with_logits" else None

    @property
    def progress(self) -> float:
        """How far the best block is below the start; never negative."""
        return max(0.0, self.start_level - self.best) if self.block_count else 0.0

    @property
    def stride(self) -> int:
        """Optimizer steps from one row to the next, as last seen."""
        return self._gap

    def recent(self, rows: int) -> list[float]:
        """Return the latest losses, at most ``rows`` of them."""
        return list(self.losses)[-rows:]

    def noise(self, rows: int = 40) -> float:
        """Return the noise of the latest losses from row to row, floored at 1e-3 of the level."""
        latest = self.recent(rows)
        floor = 1e-3 * abs(median(latest)) if latest else 0.0
        return max(roughness(latest), floor, 1e-12)

    def block_losses(self) -> list[float]:
        """Return the medians of the blocks that are kept."""
        return [block.loss for block in self.blocks]

    # ------------------------------------------------------------------ private
    def _move(self, step: int) -> None:
        if self.rows and step <= self.now.step:
            self.rewound_at = self.rows
        elif self.rows:
            self._gap = step - self.now.step
        self.now = Moment(self.rows, step)
        self.rows += 1

    def _take_update(self) -> None:
        if self.update is not None and math.isfinite(self.update):
            self.updates.append(self.update)
            self.distance += self.update * min(self._gap, 1_000)
            self._block_updates.append(self.update)

    def _take_start(self, loss: float) -> None:
        self.first.append(loss)
        self.start_level = median(self.first)
        self.start_noise = max(roughness(self.first), 0.03 * abs(self.start_level), 1e-12)

    def _close_block(self) -> None:
        block = Block(
            start=self._block_start,
            loss=median(self._block_losses),
            grad_norm=median(self._block_gradients) if self._block_gradients else None,
            update=median(self._block_updates) if self._block_updates else None,
            lr=self.lr,
        )
        self.blocks.append(block)
        self.block_count += 1
        if self.block_count * BLOCK_ROWS >= CALM_ROWS:
            window = self.recent(CALM_ROWS)
            middle = median(window)
            self.level = Level(middle, spread(window, middle), roughness(window), max(window))
        if block.loss < self.best:
            self.best, self.best_at = block.loss, block.start
        self._clear_block()

    def _clear_block(self) -> None:
        self._block_losses: list[float] = []
        self._block_gradients: list[float] = []
        self._block_updates: list[float] = []
        self._block_start = self.now

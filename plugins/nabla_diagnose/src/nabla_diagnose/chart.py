"""The course of one run in bounded memory: what all checks look at.

A row is one record with a loss. Rows are kept in rings of 320 and condensed into blocks of ten, of
which 64 are kept; the start of the run is kept for good. Nothing here judges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nabla_core.records import StepRecord

from .options import DiagnoseOptions
from .robust import median, roughness, spread
from .stretch import Stretch

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


class Level:
    """Where the losses of the last forty rows lie, as of a completed block.

    Each number is worked out when somebody asks for it: most blocks need one or two.

    Args:
        losses: forty losses in the order of the rows.
    """

    __slots__ = ("_losses", "_median", "_noise", "highest", "lowest")

    def __init__(self, losses: Sequence[float]) -> None:
        self._losses = losses
        self._median: float | None = None
        self._noise: float | None = None
        self.highest = max(losses)
        self.lowest = min(losses)

    @property
    def median(self) -> float:
        """Their median."""
        if self._median is None:
            self._median = median(self._losses)
        return self._median

    @property
    def noise(self) -> float:
        """Their spread, or their noise from row to row if that is larger."""
        if self._noise is None:
            self._noise = max(spread(self._losses, self.median), roughness(self._losses))
        return self._noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
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
    """

    def __init__(self, options: DiagnoseOptions) -> None:
        self.options = options
        self.judged = options.loss != "custom"
        self.signals: Mapping[str, float] = {}
        self.found: set[str] = set()
        self.seen: set[str] = set()
        self.other_losses: tuple[str, ...] = ()
        self.now = Moment(-1, 0)
        self.rows = self.block_count = self.recorded_step = 0
        self.loss: float | None = None
        self.grad_norm: float | None = None
        self.update: float | None = None
        self.lr: float | None = None
        self.broken: Moment | None = None
        self.first: list[float] = []
        self.start_level = self.start_noise = 0.0
        self.losses: deque[float] = deque(maxlen=_KEPT_ROWS)
        self.gradients: deque[float] = deque(maxlen=CALM_ROWS + 1)
        self.updates: deque[float] = deque(maxlen=40)
        self.blocks: deque[Block] = deque(maxlen=_KEPT_BLOCKS)
        self.level: Level | None = None
        self.best = math.inf
        self.best_at = Moment(0, 0)
        self.distance = 0.0
        self.shrinking = False
        self.rewound_at = -_KEPT_ROWS
        self._gap = 1
        self._calm: deque[float] = deque(maxlen=CALM_ROWS)
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
            self.other_losses = tuple(filter(_is_other_loss, self.seen))
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
            self._take_start(loss)
        if not self._block_losses:
            self._block_start = self.now
        self._block_losses.append(loss)
        if len(self._block_losses) < BLOCK_ROWS:
            return False
        self._close_block()
        return True

    def take_stretch(self, stretch: Stretch) -> bool:
        """Take rows in that end within the present block; return whether they completed it.

        The chart is then as if each row had been taken.
        """
        columns, steps = stretch.columns, stretch.steps
        self.signals = stretch.last()
        self.lr = self.signals.get("lr", self.lr)
        self.update = self.signals.get("update_ratio")
        self.grad_norm = self.signals.get("grad_norm")
        self.loss = self.signals["loss"]
        if not self._block_losses:
            self._block_start = Moment(self.rows, steps[0])
        if self.update is not None:
            self._take_updates(columns["update_ratio"], steps)
        self._gap = steps[-1] - (steps[-2] if len(steps) > 1 else self.now.step)
        self.rows += len(steps)
        self.now = Moment(self.rows - 1, steps[-1])
        self.losses.extend(columns["loss"])
        self._block_losses.extend(columns["loss"])
        if self.grad_norm is not None:
            norms = columns["grad_norm"]
            if stretch.lowest["grad_norm"] <= 0.0:
                norms = [norm for norm in norms if norm > 0.0]
            self.gradients.extend(norms)
        if len(self._block_losses) < BLOCK_ROWS:
            return False
        self._close_block()
        return True

    def room(self) -> int:
        """Return how many rows the present block still takes."""
        return BLOCK_ROWS - len(self._block_losses)

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

    def _take_updates(self, updates: Sequence[float], steps: Sequence[int]) -> None:
        self.updates.extend(updates)
        for update, before, step in zip(updates, (self.now.step, *steps), steps, strict=False):
            self.distance += update * min(step - before, 1_000)

    def _take_start(self, loss: float) -> None:
        self.first.append(loss)
        self.start_level = median(self.first)
        self.start_noise = max(roughness(self.first), 0.03 * abs(self.start_level), 1e-12)

    def _close_block(self) -> None:
        losses = self._block_losses
        block = Block(start=self._block_start, loss=median(losses))
        self.blocks.append(block)
        self.block_count += 1
        self._calm.extend(losses)
        if len(self._calm) == CALM_ROWS:
            self.level = Level(list(self._calm))
        if block.loss < self.best:
            self.best, self.best_at = block.loss, block.start
        self._block_losses = []


def _is_other_loss(name: str) -> bool:
    """Whether a signal is a loss that is not the training loss: a part, a player's, held out."""
    return name != "loss" and (name.startswith("loss/") or "_loss" in f"_{name}".partition("/")[0])

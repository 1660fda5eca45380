"""Rounds of timed blocks: each block of watched steps lies between two of bare ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from . import timing
from .costs import Cost, WorkloadCost
from .modes import CONTROL, WatchMode
from .timing import Block, Spread
from .workloads import Workload

__all__ = ["Rounds"]


class Rounds:
    """The measurements of one workload.

    Args:
        workload: what is trained.
        modes: ways to watch it; the bare loop against itself is measured besides.
        device: where.
    """

    def __init__(
        self, workload: Workload, modes: Sequence[WatchMode], device: torch.device
    ) -> None:
        self._workload, self._modes, self._device = workload, tuple(modes), device
        self._ratios: dict[str, list[float]] = {mode.name: [] for mode in (CONTROL, *modes)}
        self._firsts: dict[str, list[float]] = {name: [] for name in self._ratios}
        self._bare_s: list[float] = []

    def measure(self, tell: Callable[[str, str], None]) -> None:
        """Measure one round: bare, mode, bare, mode, …, bare.

        Args:
            tell: called with the workload and the mode before each block.
        """
        if not self._bare_s:
            self._block(CONTROL)  # the first of all makes what later ones find made
        before = self._block(CONTROL)
        for mode in (CONTROL, *self._modes):
            tell(self._workload.name, mode.name)
            block, after = self._block(mode), self._block(CONTROL)
            step_s = (before.step_s + after.step_s) / 2
            self._ratios[mode.name].append(block.step_s / step_s)
            self._firsts[mode.name].append(_besides(block, step_s))
            self._bare_s.append(before.step_s)
            before = after

    def cost(self) -> WorkloadCost:
        """Return what at least one round has shown."""
        spreads = {name: Spread.of(found) for name, found in self._ratios.items()}
        control = spreads[CONTROL.name]
        return WorkloadCost(
            workload=self._workload.name,
            summary=self._workload.summary,
            bare_step_s=Spread.of(self._bare_s),
            control=control,
            costs=tuple(
                _cost(mode.name, spreads[mode.name], self._firsts[mode.name], control)
                for mode in self._modes
            ),
            rounds=len(self._ratios[CONTROL.name]),
        )

    # ------------------------------------------------------------------ private
    def _block(self, mode: WatchMode) -> Block:
        return timing.timed_block(self._workload, mode, self._device)


def _cost(mode: str, ratio: Spread, firsts: Sequence[float], control: Spread) -> Cost:
    return Cost(
        mode=mode,
        ratio=ratio,
        first_steps=max(0.0, statistics.median(firsts)),
        is_hidden=ratio.overlaps(control),
    )


def _besides(block: Block, bare_step_s: float) -> float:
    """What the first steps cost more than later ones of the same block, in bare steps."""
    return (block.first_s - block.first_steps * block.step_s) / bare_step_s

"""Times one block of steps, and sums up many of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .modes import WatchMode
from .workloads import Workload

__all__ = ["Block", "Spread", "timed_block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The middle of some numbers and how far they lie apart."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """Return median and quartiles of at least one number."""
        if len(numbers) == 1:
            return cls(median=numbers[0], lower=numbers[0], upper=numbers[0])
        lower, median, upper = statistics.quantiles(numbers, n=4, method="inclusive")
        return cls(median=median, lower=lower, upper=upper)

    @property
    def relative_width(self) -> float:
        """Distance of the quartiles as a share of the median."""
        return (self.upper - self.lower) / self.median if self.median else 0.0

    def overlaps(self, other: Spread) -> bool:
        """Whether the ranges between the quartiles have anything in common."""
        return self.lower <= other.upper and other.lower <= self.upper

    def to_dict(self) -> dict[str, float]:
        """Return a JSON-safe mapping."""
        return {name: round(getattr(self, name), 6) for name in ("median", "lower", "upper")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Times of one block.

    Attributes:
        first_s: of entering and the first steps together.
        first_steps: how many these were.
        step_s: of one step after them.
    """

    first_s: float
    first_steps: int
    step_s: float


def timed_block(workload: Workload, mode: WatchMode, device: torch.device) -> Block:
    """Train a new model under a mode: first until it is known, then for the measurement.

    On the processor the time is that of this process, which other programs do not lengthen; on an
    accelerator it is wall time, up to the end of the last kernel.
    """
    loop = workload.make(device)
    known_after = workload.first_steps // mode.divisor if mode.learns else 0
    first_steps = max(4, mode.first_steps, known_after)
    steps = max(4, workload.steps // mode.divisor)
    loop.run(2)  # memory and kernels are made by the first steps of any loop
    gc.collect()
    begun_s = _now_s(device)
    with mode.enter(loop):
        loop.run(first_steps)
        known_s = _now_s(device)
        loop.run(steps)
        ended_s = _now_s(device)
    return Block(
        first_s=known_s - begun_s,
        first_steps=first_steps,
        step_s=(ended_s - known_s) / steps,
    )


def _now_s(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    getattr(torch, device.type).synchronize()
    return time.perf_counter()

"""``nabla.compare_ranks``: whether the replicas of a training are one model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch.nn import Module

from .live import compare_replicas
from .recorded import compare_records
from .result import RankComparison

__all__ = ["compare_ranks"]


def compare_ranks(
    source: str | Path | Module, *, buffers: Iterable[str] = (), step: int | None = None
) -> RankComparison:
    """Compare the parameters of all ranks, bit by bit.

    Args:
        source: folder of a run that several ranks recorded: the first step after which they differ
            is found. Or the model of this rank: it is compared now, and every rank must call this.
        buffers: with a model: names of buffers that are to be equal as well; by default none, as
            statistics of BatchNorm differ by design.
        step: with a model: number of the step, for the report.

    Raises:
        UsageError: one rank only, or no process group.
        InputError: the run cannot be read.
    """
    if isinstance(source, Module):
        return compare_replicas(source, buffers=buffers, step=step)
    return compare_records(Path(source))

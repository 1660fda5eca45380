"""Modules that do not bear half precision (PRC)."""

from __future__ import annotations

from torch import Tensor, nn

from nabla_bench.toolbox import Toolbox, tool
from nabla_core.issue import Issue

__all__ = ["digits_lost", "range_left"]

Issues = tuple[Issue, ...]


class Shifted(nn.Module):
    """Adds a constant and subtracts it again: the digits below it are gone."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, as far as its digits survive; shape of ``x``."""
        return (x + self.by) - self.by


class Energy(nn.Module):
    """The mean of scaled squares, in units that are chosen badly or well."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, x: Tensor) -> Tensor:
        """Return squares, shape of ``x``."""
        return (self.unit * x).square() / self.unit**2


def audited(box: Toolbox, middle: nn.Module, dtype: str) -> Issues:
    """Audit a model with one module of interest in one dtype."""
    model = nn.Sequential(
        nn.Linear(8, 32), nn.LayerNorm(32), middle, nn.LayerNorm(32), nn.Linear(32, 3)
    )
    batch, loss = (box.x[:128], box.y[:128]), nn.CrossEntropyLoss(reduction="sum")
    return tool("precision")(model, batch, loss, dtypes=(dtype,)).issues


def digits_lost(box: Toolbox, fault: bool) -> Issues:
    """A module that subtracts what it has just added; healthy: it adds nothing."""
    return audited(box, Shifted(500.0 if fault else 0.0), "bfloat16")


def range_left(box: Toolbox, fault: bool) -> Issues:
    """Squares beyond the largest float16; healthy: in other units."""
    return audited(box, Energy(400.0 if fault else 1.0), "float16")

# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Captured runs that cannot be repeated, or that went wrong somewhere (REP)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from nabla_bench.toolbox import Batch, Toolbox, tool
from nabla_core.issue import Issue

__all__ = ["code_changed", "step_that_broke_it"]

Issues = tuple[Issue, ...]


class Recording(Protocol):
    """What ``nabla.capture`` gives to a ``with`` block."""

    run_path: Path

    def __enter__(self) -> Recording: ...

    def __exit__(self, *exception: object) -> None: ...

    def record_step(self, *, loss: Tensor) -> object:
        """Record a step that is over."""


class Program:
    """A small training with dropout and a shuffled loader.

    Args:
        box: gives the data.
        slope: of the activation for negative inputs.
        spike: factor of one input of one sample; 1 for none.
    """

    def __init__(self, box: Toolbox, slope: float = 0.0, spike: float = 1.0) -> None:
        torch.manual_seed(0)
        layers = nn.Linear(8, 24), nn.LeakyReLU(slope), nn.Dropout(0.1), nn.Linear(24, 1)
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)
        x = box.x.clone()
        x[40] *= spike
        data = TensorDataset(x, box.x.sum(-1, keepdim=True))
        self.loader = DataLoader(data, batch_size=32, shuffle=True)

    def step(self, batch: Batch) -> Tensor:
        """Train on one batch and return its loss."""
        loss = F.mse_loss(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def captured(program: Program, epochs: int = 3) -> Path:
    """Record a training and return the folder of the run."""
    capture = cast("Callable[..., Recording]", tool("capture"))
    with capture(
        program.model, program.optimizer, loader=program.loader, checkpoint_every=8, root="runs"
    ) as recording:
        for _ in range(epochs):
            for batch in program.loader:
                recording.record_step(loss=program.step(batch))
    return recording.run_path


def code_changed(box: Toolbox, fault: bool) -> Issues:
    """The code was changed by a millionth since the run; healthy: it is the same."""
    run = captured(Program(box))
    slope = 1e-6 if fault else 0.0
    return tool("replay")(run, build=lambda: Program(box, slope=slope)).issues


def step_that_broke_it(box: Toolbox, fault: bool) -> Issues:
    """One sample throws the loss far up; healthy: no step does."""
    run = captured(Program(box, spike=1e3 if fault else 1.0), epochs=2)
    return tool("bisect")(run, metric="loss", greater_than=100.0).issues

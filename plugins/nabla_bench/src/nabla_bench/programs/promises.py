# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Declared invariants that a run breaks (CON)."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from nabla_bench.toolbox import Toolbox, classifier, tool
from nabla_core.issue import Issue

__all__ = ["gradient_outside", "weights_that_stay"]

Issues = tuple[Issue, ...]


def gradient_outside(box: Toolbox, fault: bool) -> Issues:
    """One batch in the wrong unit breaks a bound of the gradient; healthy: the right unit."""
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def train() -> None:
        for step, (x, y) in enumerate(box.batches(30)):
            scale = 1e4 if fault and step == 20 else 1.0
            optimizer.zero_grad()
            F.cross_entropy(model(x * scale), y).backward()
            optimizer.step()

    wanted = tool("contracts.gradient.norm")(max=50.0)
    return box.guarded(model, optimizer, train, contracts=[wanted])


def weights_that_stay(box: Toolbox, fault: bool) -> Issues:
    """A learning rate that moves nothing breaks a promise to learn; healthy: it moves."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 1e-12 if fault else 1e-2)

    def train() -> None:
        for x, y in box.batches(24):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    wanted = tool("contracts.parameter.change")(min_relative=1e-8, parameters="*.weight")
    return box.guarded(model, optimizer, train, contracts=[wanted])

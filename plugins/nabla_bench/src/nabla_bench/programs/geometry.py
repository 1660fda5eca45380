# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Gradients whose shape tells what is wrong with data, losses or steps (GEO)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from nabla_bench.toolbox import Judged, Toolbox, classifier, tool
from nabla_core.issue import Issue

__all__ = ["losses_in_conflict", "record_in_other_units", "steps_too_small"]

Issues = tuple[Issue, ...]


def record_in_other_units(box: Toolbox, fault: bool) -> Issues:
    """One sample is a thousand times too large; healthy: as the others."""
    x, target = box.x[:96].clone(), torch.randn(96, 1)
    if fault:
        x[7] *= 1_000.0
    return tool("trace.samples")(nn.Linear(8, 1), nn.MSELoss(), (x, target)).issues


def losses_in_conflict(box: Toolbox, fault: bool) -> Issues:
    """Two losses pull the same layer apart; healthy: they have layers of their own."""
    trunk, head, other = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(8, 16)
    hidden = torch.tanh(trunk(box.x[:64]))
    first = F.mse_loss(hidden, torch.ones_like(hidden))
    apart = hidden if fault else torch.tanh(other(box.x[:64]))
    second = F.mse_loss(apart, -torch.ones_like(hidden)) + 0.0 * head(hidden).sum()
    losses = {"first": first, "second": second}
    held = nn.ModuleDict({"trunk": trunk, "other": other})
    trace = cast("Callable[..., AbstractContextManager[object]]", tool("trace.losses"))
    with trace(losses, parameters=held) as traced:
        (first + second).backward()
    return cast("Judged", traced).issues


def steps_too_small(box: Toolbox, fault: bool) -> Issues:
    """A learning rate a thousand times too small; healthy: the usual one."""
    model = classifier(32)
    optimizer = torch.optim.Adam(model.parameters(), 1e-5 if fault else 3e-2)
    attach = cast("Callable[..., AbstractContextManager[object]]", tool("trace.attach"))
    with attach(model, optimizer, every=10, what=("step",)) as traced:
        for x, y in box.batches(120):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return cast("Judged", traced).issues

# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Runs that do not learn, or stop to learn (RUN)."""

from __future__ import annotations

import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from nabla_bench.toolbox import FEATURES, Toolbox, classifier
from nabla_core.issue import Issue

__all__ = ["layer_born_dead", "learnt_by_heart", "one_bad_batch", "rate_too_high", "rate_zeroed"]

Issues = tuple[Issue, ...]


def rate_too_high(box: Toolbox, fault: bool) -> Issues:
    """A learning rate a thousand times too high; healthy: the usual one."""
    model = classifier(64)
    optimizer = torch.optim.Adam(model.parameters(), 3.0 if fault else 0.003)

    def train() -> None:
        for x, y in box.batches(100):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.watched(model, optimizer, train)


def layer_born_dead(box: Toolbox, fault: bool) -> Issues:
    """Biases so negative that ReLU never lets anything through; healthy: the usual ones."""
    first = nn.Linear(FEATURES, 32)
    if fault:
        nn.init.constant_(first.bias, -4.0)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), 5e-2)

    def train() -> None:
        for x, y in box.batches(60):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.watched(model, optimizer, train)


def rate_zeroed(box: Toolbox, fault: bool) -> Issues:
    """A schedule that falls to zero after a third of the run; healthy: at its end."""
    noise = random.Random(int(torch.randint(1_000_000, ())))
    rows = []
    for step in range(600):
        passed = min(1.0, step / (200 if fault else 600))
        rate = 1e-3 * 0.5 * (1.0 + math.cos(math.pi * passed))
        learnt = 1.0 - math.exp(-min(step, 200 if fault else 600) / 250.0)
        rows.append(
            {
                "loss": 2.0 - 1.5 * learnt + noise.gauss(0.0, 0.02),
                "lr": rate,
                "grad_norm": 1.0 + noise.gauss(0.0, 0.05),
                "update_ratio": 0.5 * rate,
            }
        )
    return box.logged(rows)


def learnt_by_heart(box: Toolbox, fault: bool) -> Issues:
    """The validation loss rises while the training loss falls; healthy: both fall."""
    noise = random.Random(int(torch.randint(1_000_000, ())))
    rows = []
    for step in range(400):
        row = {"loss": 1.5 * math.exp(-step / 120.0) + 0.1 + noise.gauss(0.0, 0.02)}
        if step % 10 == 0:
            after = max(0.0, step - 120.0) / 280.0
            level = 1.3 * math.exp(-min(step, 120) / 80.0) + 0.5
            falls = 0.05 * math.exp(-step / 300.0)
            row["val_loss"] = level + (0.9 * after if fault else falls) + noise.gauss(0.0, 0.01)
        rows.append(row)
    return box.logged(rows)


def one_bad_batch(box: Toolbox, fault: bool) -> Issues:
    """One batch in other units throws the run back; healthy: a batch like the others."""
    noise = random.Random(int(torch.randint(1_000_000, ())))
    rows = []
    for step in range(400):
        loss = 2.0 * math.exp(-step / 150.0) + 0.3 + noise.gauss(0.0, 0.02)
        norm = 1.0 + noise.gauss(0.0, 0.08)
        if fault and step == 250:
            loss, norm = loss + 6.0, 40.0
        rows.append({"loss": loss, "grad_norm": norm, "lr": 1e-3})
    return box.logged(rows)

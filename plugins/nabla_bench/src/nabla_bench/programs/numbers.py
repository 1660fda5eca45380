# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Numbers that are not finite, or not what they should be (NUM)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nabla_bench.toolbox import FEATURES, Toolbox, classifier
from nabla_core.issue import Issue

__all__ = [
    "cancelling_variance",
    "eps_lost_in_half",
    "log_of_zero",
    "loss_of_nobody",
    "nan_in_the_data",
    "norm_of_zero_row",
]

Issues = tuple[Issue, ...]


class LogOfShare(nn.Module):
    """The logarithm of shares that were made non-negative."""

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor = floor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithm, shape of ``x``."""
        return torch.log(torch.relu(x) + self.floor)


def log_of_zero(box: Toolbox, fault: bool) -> Issues:
    """A logarithm of what ReLU made zero; healthy: with a floor."""
    share = LogOfShare(0.0 if fault else 1e-3)
    model = nn.Sequential(nn.Linear(FEATURES, 16), share, nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def train() -> None:
        for x, y in box.batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def norm_of_zero_row(box: Toolbox, fault: bool) -> Issues:
    """The norm of a row of zeros has no derivative; healthy: a square root away from zero."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def train() -> None:
        for step, (x, y) in enumerate(box.batches(6)):
            out = model(x)
            apart = (out - out.detach()) if step == 4 else out
            squares = apart.square().sum(-1)
            length = squares.sqrt() if fault else (squares + 1e-6).sqrt()
            loss = F.cross_entropy(out, y) + 0.1 * length.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def nan_in_the_data(box: Toolbox, fault: bool) -> Issues:
    """One missing value in one sample; healthy: filled in."""
    box.x[17, 3] = float("nan") if fault else 0.0
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters())

    def train() -> None:
        for x, y in box.batches(10):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def loss_of_nobody(box: Toolbox, fault: bool) -> Issues:
    """The mean over the chosen samples of a batch in which none is; healthy: divided by 1 then."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def train() -> None:
        for step, (x, y) in enumerate(box.batches(8)):
            chosen = (y == y[0]).float() * float(step != 5)
            each = F.cross_entropy(model(x), y, reduction="none") * chosen
            count = chosen.sum() if fault else chosen.sum().clamp(min=1.0)
            optimizer.zero_grad()
            (each.sum() / count).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def eps_lost_in_half(box: Toolbox, fault: bool) -> Issues:
    """Adam whose eps is zero in float16, on an embedding; healthy: weights in float32."""
    dtype = torch.float16 if fault else torch.float32
    model = nn.Sequential(nn.Embedding(40, 8), nn.Flatten(), nn.Linear(24, 2)).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def train() -> None:
        for _ in range(6):
            ids = torch.randint(0, 30, (16, 3))
            optimizer.zero_grad()
            F.cross_entropy(model(ids).float(), ids.sum(-1) % 2).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


class Standardised(nn.Module):
    """Each row with mean zero and variance one."""

    def __init__(self, centred: bool) -> None:
        super().__init__()
        self.centred = centred

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows, shape of ``x``."""
        mean = x.mean(-1, keepdim=True)
        if self.centred:
            variance = (x - mean).square().mean(-1, keepdim=True)
        else:
            variance = x.square().mean(-1, keepdim=True) - mean.square()
        return (x - mean) * torch.rsqrt(variance.abs() + 1e-6)


def cancelling_variance(box: Toolbox, fault: bool) -> Issues:
    """The mean of squares minus the square of the mean, far from zero; healthy: centred first."""
    model = nn.Sequential(Standardised(centred=not fault), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def train() -> None:
        for _ in range(4):
            x = 0.1 * torch.randn(32, 64) + 3_000.0
            optimizer.zero_grad()
            F.cross_entropy(model(x), torch.randint(0, 3, (32,))).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)

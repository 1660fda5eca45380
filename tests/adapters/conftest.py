"""One small program with planted faults, trained by a plain loop and by each framework."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import nabla

EPOCHS, BATCH, SAMPLES = 5, 16, 160


class Net(nn.Module):
    """Classifies; each fault is one line of it, of its optimizer or of its data."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        h = self.body(x)
        if self.fault == "log" and self.calls == 20:
            h = torch.log(h - h.max() - 1)
        if self.fault == "sqrt" and self.calls == 20:
            h = torch.sqrt(h * 0.0) + h
        if self.fault == "detached":
            h = h.detach()
        out = self.head(h)
        if self.fault == "softmax":
            out = out.softmax(-1)
        return out

    def trained(self):
        return self.head.parameters() if self.fault == "left_out" else self.parameters()

    @property
    def rate(self):
        return {"rate": 300.0, "zero_rate": 0.0}.get(self.fault, 0.05)


@dataclass
class Case:
    """A planted fault."""

    fault: str
    net: Net = field(init=False)
    x: torch.Tensor = field(init=False)
    y: torch.Tensor = field(init=False)

    def __post_init__(self):
        torch.manual_seed(0)
        self.net = Net(self.fault)
        self.x = torch.randn(SAMPLES, 8)
        self.y = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 1).long()
        if self.fault == "nan_input":
            self.x[70, 3] = float("nan")
        if self.fault == "all_ignored":
            self.y[:] = -100

    def loss(self, out, y):
        if self.fault == "broadcast":
            return nn.functional.mse_loss(out[:, 0], y[:, None].float())
        return nn.functional.cross_entropy(out, y)


FAULTS = {
    "nan_input": "NUM104",
    "log": "NUM101",
    "sqrt": "NUM102",
    "softmax": "AUD401",
    "detached": "AUD204",
    "left_out": "AUD201",
    "broadcast": "AUD404",
    "rate": "RUN201",
    "zero_rate": "AUD303",
    "all_ignored": "AUD409",
}


@pytest.fixture
def case():
    return Case


@pytest.fixture
def by_hand():
    """Train a case in a plain loop and return the report."""

    def train(case):
        optimizer = torch.optim.SGD(case.net.trained(), lr=case.net.rate)
        with nabla.watch(case.net, optimizer, quiet=True) as run:
            for _ in range(EPOCHS):
                case.net.train()
                for start in range(0, SAMPLES, BATCH):
                    rows = slice(start, start + BATCH)
                    loss = case.loss(case.net(case.x[rows]), case.y[rows])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        return run.finish()

    return train


@pytest.fixture
def verdicts():
    """Return the rules that found more than information."""

    def found(report):
        return {issue.rule for issue in report.issues if issue.severity > nabla.Severity.INFO}

    return found


USUAL = ("nan_input", "sqrt", "detached", "rate")
"""Tried with each framework in every run; the others are slow, and alike in all of them."""


def pytest_generate_tests(metafunc):
    if "fault" in metafunc.fixturenames:
        cases = [
            pytest.param(name, rule, id=name, marks=() if name in USUAL else pytest.mark.slow)
            for name, rule in FAULTS.items()
        ]
        metafunc.parametrize(("fault", "rule"), cases)

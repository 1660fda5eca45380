import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla_contracts
from nabla_core.testing import fake_session, find, host_with
from nabla_guard import guard


class Loop:
    """A small classifier that trains; a test may change the loss or act before the step."""

    def __init__(self, model=None, optimizer=None):
        torch.manual_seed(0)
        self.model = model or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = optimizer or torch.optim.SGD(self.model.parameters(), 1e-2)

    def train(self, steps=6, loss=None, before_step=None):
        for step in range(steps):
            x = torch.randn(8, 6)
            value = F.cross_entropy(self.model(x), x[:, :3].argmax(-1))
            if loss is not None:
                value = loss(step, value)
            self.optimizer.zero_grad()
            value.backward()
            if before_step is not None:
                before_step(step)
            self.optimizer.step()


@pytest.fixture
def make_loop():
    return Loop


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def held():
    """Train a loop under contracts and return the CON issues of the report."""

    def run(loop, *contracts, train=None, **options):
        with guard(loop.model, contracts=contracts, shadow="off", **options) as monitor:
            (train or loop.train)()
        report = monitor.report()
        assert not [p for p in report.problems if p.rule in ("NAB004", "NAB008")], report.problems
        return [issue for issue in report.issues if issue.rule.startswith("CON")]

    return run


@pytest.fixture
def judged():
    """Let one contract judge made-up records and return its issues, those of the end included."""

    def run(contract, records):
        session = fake_session(host_with("nabla_contracts.plugin"), offers=("loss", "grad_norm"))
        (detector,) = nabla_contracts.contract_detectors([contract], session)
        return find(detector, records)

    return run

from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_core.records import StepRecord
from nabla_guard import guard

torch.set_num_threads(1)


class FakeFacts:
    """Facts that a test sets by hand."""

    def __init__(self, stepping=None, parameters=(), modules=()):
        self.stepping = stepping
        self.parameters = list(parameters)
        self.modules = list(modules)
        self.optimizers = [stepping] if stepping else []
        self.numbers = self.last_numbers = None
        self.families = {}

    def gather(self, family):
        """Families of facts that stay empty; a test fills the ones it is about."""
        if family not in self.families:
            self.families[family] = mock.MagicMock(spec=family)
            self.families[family].newcomers = []
            if hasattr(family, "replaced"):
                self.families[family].replaced.return_value = []
                self.families[family].is_constant.return_value = False
            if hasattr(family, "parts"):
                self.families[family].parts.return_value = 0
            if hasattr(family, "are_frozen"):
                self.families[family].are_frozen.return_value = False
            if hasattr(family, "identical"):
                self.families[family].identical.return_value = None
        return self.families[family]

    def examine(self, parameters):
        self.examined = list(parameters)


@pytest.fixture
def fake_facts():
    return FakeFacts


@pytest.fixture
def judge():
    """Let a detector judge so many steps of the same facts; return the issues with their steps."""

    def run(detector, steps, before=None):
        found = []
        for step in range(steps):
            if before is not None:
                before(step)
            found += detector.step(StepRecord(step=step, time_s=0.0))
        return [(issue.rule, issue.step) for issue in found]

    return run


@pytest.fixture
def audited():
    """Run a program under the guard; return what the audit rules found."""

    def run(program):
        torch.manual_seed(0)
        with guard(mode="light") as monitor:
            program()
        report = monitor.report()
        assert not [p for p in report.problems if p.rule in ("NAB004", "NAB008")], report.problems
        return [issue for issue in report.issues if issue.rule.startswith("AUD")]

    return run


def make_net(width=24, inputs=6, outputs=3):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


@pytest.fixture
def net():
    return make_net


@pytest.fixture
def batches():
    def make(steps=10, size=16):
        inputs = torch.randn(steps, size, 6)
        return [(x, x[:, :3].argmax(-1)) for x in inputs]

    return make


@pytest.fixture
def entropy():
    return F.cross_entropy

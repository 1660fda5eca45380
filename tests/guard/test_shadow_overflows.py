"""Overflows of which no output shows an infinity: noticed by the processor's flag, then shown."""

import platform
import sys

import pytest
import torch
from torch import nn

from nabla_core.severity import Severity
from nabla_guard import guard
from nabla_guard.shadow.overflow_flag import OverflowFlag

HAS_FLAG = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
needs_flag = pytest.mark.skipif(not HAS_FLAG, reason="no flag is known for this processor")


class Rms(nn.Module):
    """A norm whose sum of squares leaves float16 above a root mean square of about 45."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-3) * self.scale


def train(factors, mode="standard"):
    """Train one step per factor, by which sample 4 of the batch is multiplied."""
    torch.manual_seed(0)
    model = nn.Sequential(Rms(), nn.Linear(32, 1)).half()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with guard(model, mode=mode) as monitor:
        for factor in factors:
            x = torch.randn(6, 32).half()
            x[4] *= factor
            optimizer.zero_grad()
            (model(x).float() - 1).pow(2).mean().backward()
            optimizer.step()
    return [
        issue
        for issue in monitor.issues
        if issue.rule.startswith("NUM10") and issue.severity >= Severity.LOW
    ]


@needs_flag
def test_an_overflow_that_arithmetic_swallows_is_named_at_its_step():
    (issue,) = train([1, 1, 1, 1, 1, 1, 1, 120, 1])

    where = issue.where
    assert (issue.rule, issue.phase, issue.step) == ("NUM101", "forward", 7), issue.message
    assert (where.module, where.op, where.sample) == ("0", "mul", 4)
    assert issue.evidence["swallowed_by"] == "rsqrt"


def test_just_below_the_range_nothing_is_said():
    assert train([1, 1, 1, 1, 1, 1, 1, 20, 1]) == []


def test_light_mode_compares_nothing():
    assert train([1, 1, 1, 1, 1, 1, 1, 120, 1], mode="light") == []


@needs_flag
def test_the_flag_is_noticed_after_quiet_steps_and_a_few_times_only():
    flag, big = OverflowFlag(credit=2), torch.full((4,), 3e38)

    def raised(overflows):
        big * (10.0 if overflows else 0.1)
        return flag.raised()

    assert not raised(True)  # nothing is known yet of the steps before
    assert [raised(step == 3) for step in range(5)] == [False, False, False, True, False]
    assert [raised(True) for _ in range(3)] == [False] * 3  # usual by now
    assert [raised(step in (2, 5, 8)) for step in range(9)].count(True) == 1


class Integral(nn.Module):
    """Adds small numbers to a constant of the program, which no rounding of a batch moves."""

    def forward(self, x):
        total = torch.full_like(x[:, :1], 64.0)
        for column in x.unbind(1):
            total = total + 0.01 * column[:, None]
        return total - 64.0


@pytest.mark.parametrize(("dtype", "rules"), [(torch.bfloat16, {"NUM122"}), (torch.float32, set())])
def test_a_sum_that_a_constant_swallows_is_no_fault_of_the_data(dtype, rules):
    torch.manual_seed(0)
    model = nn.Sequential(Integral(), nn.Linear(1, 1)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with guard(model) as monitor:
        for _ in range(3):
            optimizer.zero_grad()
            (model((torch.rand(6, 40) + 0.5).to(dtype)).float() - 1).pow(2).mean().backward()
            optimizer.step()

    assert {issue.rule for issue in monitor.issues if issue.rule.startswith("NUM12")} == rules

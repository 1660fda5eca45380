"""Loops that give ``step`` a closure, as frameworks do: calm and explained like others."""

import math

import pytest
import torch
from torch import nn

from nabla_guard import guard

MOST_MORE_CALLS = 200


class Program:
    """A loop whose step is given a closure, or not."""

    def __init__(self, closure):
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(8)), nn.Linear(6, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.closure = closure

    def step(self, x=None):
        x = torch.randn(8, 6) if x is None else x

        def evaluate():
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

        if self.closure:
            self.optimizer.step(evaluate)
        else:
            evaluate()
            self.optimizer.step()


def test_a_closure_that_is_evaluated_once_makes_a_calm_loop(calls_of_ours):
    calls = []
    for closure in (False, True):
        program = Program(closure)
        with guard(program.model, optimizer=program.optimizer, mode="light") as monitor:
            for _ in range(40):
                program.step()
            assert monitor.session.source.calm.on
            calls.append(calls_of_ours(program.step))
    assert calls[1] <= calls[0] + MOST_MORE_CALLS


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("step", [2, 37])
def test_a_bad_batch_is_named(closure, step):
    program = Program(closure)
    options = {"mode": "light", "on_nonfinite": "report"}
    with guard(program.model, optimizer=program.optimizer, **options) as monitor:
        for index in range(step + 1):
            x = torch.randn(8, 6)
            if index == step:
                x[3, 1] = math.nan
            program.step(x)
    (issue,) = [issue for issue in monitor.report().issues if issue.rule.startswith("NUM10")]
    assert (issue.rule, issue.step, issue.where.sample) == ("NUM104", step, 3), issue.message


def test_a_search_that_evaluates_many_times_is_looked_at_closely():
    program = Program(True)
    program.optimizer = torch.optim.LBFGS(program.model.parameters(), 1e-3)
    with guard(program.model, optimizer=program.optimizer, mode="light") as monitor:
        for _ in range(24):
            program.step(torch.ones(8, 6))
        assert not monitor.session.source.calm.on
    assert not [issue for issue in monitor.report().issues if issue.rule.startswith("NUM")]

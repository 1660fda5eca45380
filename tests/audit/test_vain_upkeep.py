"""AUD210, AUD304, AUD307 and AUD308: averages, schedules and draws without the effect meant."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.checkpoint import checkpoint


def found(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def loss_of(model):
    x = torch.randn(16, 6)
    return F.cross_entropy(model(x), (x[:, 0] > 0).long())


def trained(model, behind, steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for index in range(steps):
        model.train()
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        behind(index, optimizer)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 6))


@pytest.mark.parametrize(
    ("itself", "steps", "rules"),
    [(True, 6, [("AUD210", "high")]), (True, 4, []), (False, 6, [])],
)
def test_an_average_of_itself(audited, net, itself, steps, rules):
    model = net(outputs=2)
    average = copy.deepcopy(model).requires_grad_(False)

    def behind(index, optimizer):
        source = average if itself else model
        with torch.no_grad():
            for mean, new in zip(average.parameters(), source.parameters(), strict=True):
                mean.copy_(0.5 * mean + 0.5 * new)
        if index % 2:
            evaluate(average)

    assert found(audited(lambda: trained(model, behind, steps))) == rules


@pytest.mark.parametrize(("momentum", "rules"), [(0.0, [("AUD210", "high")]), (0.01, [])])
def test_running_statistics_that_never_move(audited, momentum, rules):
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 2)
    model = nn.Sequential(*layers)

    def behind(index, optimizer):
        if index == 4:
            evaluate(model)

    assert found(audited(lambda: trained(model, behind, 6))) == rules


def by_attribute(optimizer, rate):
    optimizer.lr = rate


def by_default(optimizer, rate):
    optimizer.defaults["lr"] = rate


def by_group(optimizer, rate):
    optimizer.param_groups[0]["lr"] = optimizer.lr = rate


@pytest.mark.parametrize(
    ("write", "rules"),
    [(by_attribute, ["AUD308"]), (by_default, ["AUD308"]), (by_group, [])],
)
def test_rates_that_nobody_reads(audited, net, write, rules):
    def behind(index, optimizer):
        write(optimizer, 0.1 * 0.9**index)

    issues = audited(lambda: trained(net(outputs=2), behind, 5))
    assert [issue.rule for issue in issues] == rules


@pytest.mark.parametrize(("last_steps", "rules"), [(1, []), (2, ["AUD308"])])
def test_a_rate_that_differs_at_so_many_looks(audited, net, last_steps, rules):
    def behind(index, optimizer):
        if index == 4 - last_steps:
            by_default(optimizer, 0.05)

    issues = audited(lambda: trained(net(outputs=2), behind, 5))
    assert [issue.rule for issue in issues] == rules


def test_a_constant_kept_beside_the_rates(audited, net):
    def behind(index, optimizer):
        optimizer.lr = 0.5

    assert audited(lambda: trained(net(outputs=2), behind, 5)) == []


@pytest.mark.parametrize(("decay", "rules"), [(0.9, [("AUD304", "medium")]), (0.8, [])])
def test_two_equal_schedules_of_one_optimizer(audited, decay, rules):
    def program():
        one, other = nn.Linear(6, 2), nn.Linear(6, 2)
        first, second = (torch.optim.SGD(m.parameters(), 0.1) for m in (one, other))
        schedules = [ExponentialLR(first, 0.9), ExponentialLR(first, decay)]
        for _ in range(6):
            for model, optimizer in ((one, first), (other, second)):
                optimizer.zero_grad()
                loss_of(model).backward()
                optimizer.step()
            for schedule in schedules:
                schedule.step()

    assert found(audited(program)) == rules


class Noisy(nn.Module):
    """A block that draws from a generator of its own choice."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.dense = draw, nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(x * self.draw()).relu()


class Checkpointed(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(6, 8), Noisy(draw), nn.Linear(8, 2)

    def forward(self, x):
        random.random()  # outside the block
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=False))


@pytest.mark.parametrize(
    ("draw", "rules"),
    [
        (lambda: 1 + random.random(), [("AUD307", "medium")]),
        (lambda: float(np.random.rand()), [("AUD307", "medium")]),
        (lambda: torch.rand(8), []),
        (lambda: 1.0, []),
    ],
    ids=["random", "numpy", "torch", "none"],
)
def test_draws_that_a_checkpoint_does_not_repeat(audited, draw, rules):
    assert found(audited(lambda: trained(Checkpointed(draw), lambda *_: None, 6))) == rules

"""AUD108, AUD305 and AUD404: calls that come too early, too late, or for somebody else."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import StepLR


def loud(issues):
    return [issue.rule for issue in issues if issue.severity.label != "info"]


def clipped(model, when, clip="clip_grad_norm_", limit=1.0, count=8):
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, 1e-3)

    def now(place):
        if place == when:
            getattr(torch.nn.utils, clip)(parameters, limit)

    for _ in range(count):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        now("before backward")
        F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
        now("before step")
        optimizer.step()
        now("behind step")


@pytest.mark.parametrize(
    ("clip", "when", "found"),
    [
        ("clip_grad_norm_", "before backward", ["AUD108"]),
        ("clip_grad_norm_", "behind step", ["AUD108"]),
        ("clip_grad_value_", "behind step", ["AUD108"]),
        ("clip_grad_norm_", "before step", []),
        ("clip_grad_value_", "before step", []),
    ],
)
def test_clipping_that_no_step_feels(audited, net, clip, when, found):
    assert loud(audited(lambda: clipped(net(), when, clip))) == found


def test_measuring_a_norm_is_lawful(audited, net):
    def program():
        clipped(net(), "behind step", limit=float("inf"))
        clipped(net(), "behind step", count=3)  # felt by two steps at most

    assert loud(audited(program)) == []


def test_clipping_a_part_that_is_frozen_is_lawful(audited, net):
    def program():
        body, head = nn.Linear(6, 6).requires_grad_(False), net()
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 1e-2)
        for _ in range(8):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            F.cross_entropy(head(body(x)), x[:, :3].argmax(-1)).backward()
            clip_grad_norm_(body.parameters(), 1.0)
            optimizer.step()

    assert loud(audited(program)) == []


def scheduled(model, renewed, wrap=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = StepLR(optimizer, 3)
    if renewed:
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    stepped = optimizer if wrap is None else wrap(optimizer)
    for _ in range(8):
        x = torch.randn(16, 6)
        stepped.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
        stepped.step()
        scheduler.step()


class Wrapper(torch.optim.Optimizer):
    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base = base

    def step(self, closure=None):
        self.base.step()


def test_a_schedule_of_an_optimizer_that_was_made_anew(audited, net):
    (issue,) = audited(lambda: scheduled(net(), True))
    assert (issue.rule, issue.severity.label) == ("AUD305", "high")
    assert "follows no schedule" in issue.message


@pytest.mark.parametrize("wrap", [None, Wrapper])
def test_a_schedule_of_the_optimizer_or_of_what_it_wraps_is_lawful(audited, net, wrap):
    assert loud(audited(lambda: scheduled(net(), False, wrap))) == []


def policy(flat, reduce, steps=4):
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(steps):
        x = torch.randn(20, 6)
        log_prob = model(x).log_softmax(-1)[torch.arange(20), x[:, :3].argmax(-1)]
        gain = torch.randn(20) if flat else torch.randn(20, 1)
        optimizer.zero_grad()
        reduce(log_prob, gain).backward()
        optimizer.step()


def plain(log_prob, gain):
    return -(log_prob * gain).mean()


def summed(log_prob, gain):
    return 0.5 * (-log_prob * gain + 0.1).sum() / 20


def hinge(log_prob, gain):
    return (1 - log_prob * gain).relu().mean()  # pairs that are compared one by one


@pytest.mark.parametrize(
    ("flat", "reduce", "found"),
    [
        (False, plain, ["AUD404"]),
        (False, summed, ["AUD404"]),
        (False, hinge, []),
        (True, plain, []),
        (True, summed, []),
    ],
)
def test_a_product_of_a_column_and_a_flat_tensor(audited, flat, reduce, found):
    assert loud(audited(lambda: policy(flat, reduce))) == found

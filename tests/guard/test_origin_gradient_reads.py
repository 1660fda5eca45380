"""Gradients that the loop reads itself: clipped, normalised, replaced by hand, or only logged."""

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard

LATE = 37  # deep in a calm loop

program = PROGRAMS = Programs()


def train(log, rework, steps=45, zero_at=LATE):
    """Train a classifier whose gradients are exactly zero in one step; ``rework`` sees them."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(8, 6)), torch.randint(3, (8,)))
        (loss * float(step != zero_at)).backward()
        rework(list(model.parameters()))
        optimizer.step()
        log(loss)
    log(*model.parameters())


@program("NUM102", "backward", "div", LATE)
def replaced_by_their_direction(log):
    def rework(parameters):
        for p in parameters:
            p.grad = p.grad / p.grad.norm()  # born

    train(log, rework)


@program("NUM102", "backward", "div", 2)
def scaled_in_place_by_the_norm_of_all(log):
    def rework(parameters):
        grads = [p.grad for p in parameters]
        total = torch.stack([g.norm() for g in grads]).norm()
        for g in grads:
            g.div_(total)  # born

    train(log, rework, steps=6, zero_at=2)


@program("NUM102", "backward", "div", LATE)
def read_before_they_are_replaced(log):
    def rework(parameters):
        old = [p.grad for p in parameters]
        for p in parameters:
            p.grad = torch.ones_like(p)
        for p, g in zip(parameters, old, strict=True):
            p.grad = g / g.abs().max()  # born

    train(log, rework)


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_in_a_gradient_made_by_hand_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, _place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    found = (issue.rule, issue.phase, issue.where.op, issue.step)
    assert found == (rule, phase, op, step), issue.message
    assert issue.where.line in lines_of(run), issue.message


def clipped(parameters):
    total = torch.stack([p.grad.norm() for p in parameters]).norm()
    for p in parameters:
        p.grad = p.grad / total.clamp(min=1e-6)


def test_the_same_with_a_limit_is_silent(loud_issues_of):
    assert not loud_issues_of(lambda log: train(log, clipped))


def test_reading_many_gradients_costs_little(calls_of_ours):
    """Clipping by hand reads the gradient of every parameter, in every step."""
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(32)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    parameters = list(model.parameters())

    def step(reads):
        optimizer.zero_grad()
        model(torch.ones(4, 6)).square().mean().backward()
        torch._foreach_norm([p.grad for p in parameters for _ in range(reads)])
        optimizer.step()

    with guard(model, optimizer=optimizer, mode="light"):
        for _ in range(24):
            step(1)
        once, four_times = (calls_of_ours(lambda reads=reads: step(reads)) for reads in (1, 4))
    assert (four_times - once) / (3 * len(parameters)) < 12

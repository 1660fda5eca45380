"""AUD108: gradients that the program changes when their step is over."""

import pytest
import torch
from torch import nn


def clamp(parameters):
    for parameter in parameters:
        parameter.grad.data.clamp_(-0.01, 0.01)


def rescale(parameters):
    norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm()
    for parameter in parameters:
        parameter.grad = parameter.grad * min(1.0, 0.1 / float(norm))


def clear(parameters):
    for parameter in parameters:
        parameter.grad.zero_()


def look(parameters):
    assert all(torch.isfinite(parameter.grad).all() for parameter in parameters)


def plain(edit, late, steps):
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    parameters = list(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        for act in [optimizer.step, lambda: edit(parameters)][:: 1 if late else -1]:
            act()


class Agent:
    """A learner that clears through its module, behind the update."""

    def __init__(self, edit, late):
        self.policy, self.edit, self.late = nn.GRU(4, 6, batch_first=True), edit, late
        self.optimizer = torch.optim.Adam(self.policy.parameters())

    def learn(self):
        self.policy(torch.randn(4, 5, 4))[0].square().mean().backward()
        if not self.late:
            self.edit(list(self.policy.parameters()))
        self.optimizer.step()
        if self.late:
            self.edit(list(self.policy.parameters()))
        self.policy.zero_grad()


def agent(edit, late, steps):
    learner = Agent(edit, late)
    for _ in range(steps):
        learner.learn()


@pytest.mark.parametrize("train", [plain, agent])
@pytest.mark.parametrize("edit", [clamp, rescale])
@pytest.mark.parametrize("late", [True, False])
def test_gradients_that_are_changed_behind_the_step(audited, train, edit, late):
    issues = audited(lambda: train(edit, late, 6))

    expected = [("AUD108", "medium")] if late else []
    assert [(issue.rule, issue.severity.label) for issue in issues] == expected


def test_three_steps_are_needed(audited):
    assert audited(lambda: plain(clamp, True, 3)) == []
    assert [issue.rule for issue in audited(lambda: plain(clamp, True, 5))] == ["AUD108"]


@pytest.mark.parametrize("edit", [clear, look])
def test_clearing_by_hand_and_looking_are_no_change(audited, edit):
    assert audited(lambda: plain(edit, True, 6)) == []


def test_gradients_that_are_no_numbers_are_the_same(audited):
    def program():
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for _ in range(6):
            optimizer.zero_grad()
            (model(torch.randn(8, 4)) / 0 * 0).mean().backward()
            optimizer.step()

    assert "AUD108" not in [issue.rule for issue in audited(program)]


def test_what_is_not_cleared_is_used_again(audited):
    def program():
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for _ in range(8):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            for parameter in model.parameters():
                parameter.grad.mul_(0.9)  # a momentum written by hand

    assert audited(program) == []

"""AUD101, AUD102 and AUD204 where no gradient was ever written, or a closure is in charge."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def loud(issues):
    return [issue.rule for issue in issues if issue.severity.label != "info"]


def steps(model, finish, count=6):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(count):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        finish(model(x), x[:, :3].argmax(-1))
        optimizer.step()


def never(scores, y):
    F.cross_entropy(scores, y).item()


def by_argmax(scores, y):
    loss = (scores.argmax(-1) != y).float().mean()
    loss.requires_grad = True
    loss.backward()


def by_numbers(scores, y):
    losses = [F.cross_entropy(one, label).item() for one, label in zip(scores, y, strict=True)]
    torch.tensor(losses, requires_grad=True).mean().backward()


def properly(scores, y):
    F.cross_entropy(scores, y).backward()


@pytest.mark.parametrize(
    ("finish", "found"),
    [(never, ["AUD101"]), (by_argmax, ["AUD204"]), (by_numbers, ["AUD204"]), (properly, [])],
)
def test_steps_for_which_nothing_was_written(audited, net, finish, found):
    assert loud(audited(lambda: steps(net(), finish))) == found


def test_three_steps_are_not_enough(audited, net):
    assert loud(audited(lambda: steps(net(), never, count=3))) == []


class Evolution(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(torch.randn_like(parameter), alpha=0.01)


def test_an_optimizer_that_needs_no_gradient_is_lawful(audited, net):
    def program():
        model = net()
        optimizer = Evolution(model.parameters())
        for _ in range(8):
            model(torch.randn(8, 6))
            optimizer.step()

    assert loud(audited(program)) == []


def closures(optimizer_of, before, after, count=8):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optimizer_of(model.parameters())
    x = torch.randn(32, 3)

    def closure():
        if before:
            optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.prod(1, keepdim=True))
        loss.backward()
        if after:
            optimizer.zero_grad()
        return loss

    for _ in range(count):
        optimizer.step(closure)


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters, lr=0.5, max_iter=3)


def adam(parameters):
    return torch.optim.Adam(parameters, 1e-3)


@pytest.mark.parametrize("optimizer_of", [lbfgs, adam])
@pytest.mark.parametrize(
    ("before", "after", "found"),
    [(True, False, []), (False, False, ["AUD102"]), (False, True, ["AUD101"])],
)
def test_closures(audited, optimizer_of, before, after, found):
    assert loud(audited(lambda: closures(optimizer_of, before, after))) == found


def test_an_optimizer_that_clears_when_it_is_done_is_lawful(audited):
    class Clearing(torch.optim.SGD):
        def step(self, closure=None):
            loss = super().step(closure)
            self.zero_grad()
            return loss

    assert loud(audited(lambda: closures(lambda p: Clearing(p, 0.1), False, False))) == []

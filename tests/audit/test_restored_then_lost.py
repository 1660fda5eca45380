"""AUD601 and AUD602: optimizers made anew, lists of states, names that begin otherwise."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, body="encoder", head="head"):
        super().__init__()
        self.names = body, head
        self.add_module(body, nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.add_module(head, nn.Linear(16, 2))

    def forward(self, x):
        body, head = self.names
        return getattr(self, head)(getattr(self, body)(x))


class Wrapping(torch.optim.Optimizer):
    def __init__(self, base):
        self.base = base
        super().__init__(base.param_groups, base.defaults)

    def step(self):
        self.base.step()


def make():
    model = Net()
    return model, torch.optim.Adam(model.parameters(), 1e-2)


def train(model, optimizer, steps=4):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()


def resumed(path, change, keys=("model", "optimizer")):
    def program():
        parts = make()
        train(*parts)
        states = [part.state_dict() for part in parts]
        torch.save(dict(zip(keys, states, strict=True)) if keys else states, path)
        model, optimizer = make()
        loaded = torch.load(path)
        first, second = (loaded[key] for key in keys or (0, 1))
        model.load_state_dict(first)
        train(model, change(model, optimizer, second))

    return program


def restored(model, optimizer, state):
    optimizer.load_state_dict(state)
    return optimizer


def made_anew(model, optimizer, state):
    restored(model, optimizer, state)
    return torch.optim.Adam(model.parameters(), 1e-2)


def wrapped(model, optimizer, state):
    return Wrapping(restored(model, optimizer, state))


def forgotten(model, optimizer, state):
    return optimizer


@pytest.mark.parametrize(
    ("change", "keys", "expected"),
    [
        (made_anew, ("model", "optimizer"), ["AUD601"]),
        (forgotten, (), ["AUD601"]),
        (restored, (), []),
        (wrapped, ("model", "optimizer"), []),
    ],
)
def test_the_optimizer_that_goes_on_is_the_restored_one(audited, tmp_path, change, keys, expected):
    issues = audited(resumed(tmp_path / "state.pt", change, keys))
    assert [issue.rule for issue in issues] == expected
    assert all(issue.severity.label == "high" for issue in issues)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("backbone", "head"), ["AUD602"]),
        (("encoder", "classifier"), []),  # a new head of the same shape
        (("encoder", "head"), []),
    ],
)
def test_most_of_a_model_under_another_name(audited, names, expected):
    def program():
        model = Net(*names)
        model.load_state_dict(Net().state_dict(), strict=False)
        train(model, torch.optim.Adam(model.parameters(), 1e-3))

    assert [issue.rule for issue in audited(program)] == expected

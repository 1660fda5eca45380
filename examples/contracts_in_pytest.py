"""Contracts as assertions of a unit test.

pytest examples/contracts_in_pytest.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import nabla

WANTED = [
    nabla.contracts.loss.finite(),
    nabla.contracts.gradient.norm(max=10.0),
    nabla.contracts.parameter.change(min_relative=1e-7, max_relative=0.5, parameters="*.weight"),
]


def build(scale=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train_step():
        x = torch.randn(16, 6)
        loss = scale * F.cross_entropy(model(x), x[:, :3].argmax(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train_step


def test_three_steps_hold():
    nabla.contracts.assert_step(build(), WANTED, steps=3)


def test_one_backward_holds():
    model = nn.Linear(6, 3)
    loss = model(torch.ones(4, 6)).square().mean()
    loss.backward()

    nabla.contracts.check(model, loss=loss, contracts=WANTED[:2]).raise_if_failed()

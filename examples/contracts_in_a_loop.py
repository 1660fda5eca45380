"""Invariants of a run, declared once and held at every step.

    python examples/contracts_in_a_loop.py

The batch of step 30 is a hundred thousand times too large. Nothing crashes; the contracts say at
which step which promise was broken, and where.
"""

import torch
from torch import nn
from torch.nn import functional as F

import nabla

WANTED = [
    nabla.contracts.loss.finite(),
    nabla.contracts.gradient.norm(max=50.0),
    nabla.contracts.parameter.change(min_relative=1e-6, parameters="*.weight", every=10),
    nabla.contracts.training.loss_not_exploding(max_ratio=10, window=20),
    nabla.contract("the last bias stays small", lambda step: step.parameters["2.bias"].norm() < 5),
]


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with nabla.guard(model, optimizer=optimizer, contracts=WANTED) as monitor:
        for step in range(40):
            x = torch.randn(16, 6) * (1e5 if step == 30 else 1.0)
            loss = F.cross_entropy(model(x), x[:, :3].argmax(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return monitor.report()


if __name__ == "__main__":
    main().print()

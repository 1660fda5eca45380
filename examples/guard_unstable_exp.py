"""A softmax written by hand, whose exp overflows on the first confident batch.

    python examples/guard_unstable_exp.py

The guard names the step, the op, the line and the sample; ``x.softmax(-1)`` has no such line.
"""

import torch
from torch import nn
from torch.nn import functional as F

import nabla


class Gate(nn.Module):
    def forward(self, x):
        weights = torch.exp(x)  # above 88.7 this is infinite in float32
        return weights / weights.sum(-1, keepdim=True)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), Gate())
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for step in range(6):
            x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
            if step == 4:
                x[7] *= 1000.0
            optimizer.zero_grad()
            F.mse_loss(model(x), F.one_hot(y, 4).float()).backward()
            optimizer.step()
    return monitor.report()


if __name__ == "__main__":
    main().print()

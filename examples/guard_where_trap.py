"""A finite loss with NaN gradients: ``torch.where`` hides the value, not the derivative.

    python examples/guard_where_trap.py

The branch that is not taken still gets a gradient, zero times infinity. Clamp the argument before
the square root instead of choosing after it.
"""

import torch
from torch import nn

import nabla


class Root(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x.sqrt(), torch.zeros_like(x))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Root())
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(16, 4)).mean().backward()
            optimizer.step()
    return monitor.report()


if __name__ == "__main__":
    main().print()

"""No NaN, no warning, a falling loss, and every number is wrong: a variance that cancels.

    python examples/guard_silent_variance.py

The mean of the squares minus the square of the mean subtracts two numbers near 400 that bfloat16
knows to within 2. The float64 shadow of the first step shows it.
"""

import torch
from torch import nn
from torch.nn import functional as F

import nabla


class Norm(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = (x * x).mean(-1, keepdim=True) - mean**2
        return (x - mean) * torch.rsqrt(var.abs() + 1e-6)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(Norm(), nn.Linear(64, 4)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for _ in range(4):
            x = (torch.randn(32, 64) * 0.1 + 20).bfloat16()
            optimizer.zero_grad()
            F.cross_entropy(model(x).float(), torch.randint(0, 4, (32,))).backward()
            optimizer.step()
    return monitor.report()


if __name__ == "__main__":
    main().print()

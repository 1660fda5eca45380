"""A float16 product that leaves the range of its dtype: 65504 is the largest number there is.

    python examples/guard_half_overflow.py

While the product is still finite, NUM111 says how near it is; then NUM101 says where it broke.
"""

import torch
from torch import nn
from torch.nn import functional as F

import nabla


class Square(nn.Module):
    def forward(self, x):
        return x * x


def main():
    torch.manual_seed(0)
    model = nn.Sequential(Square(), nn.Linear(8, 3)).half()
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for step in range(4):
            x = torch.randn(16, 8).clamp(-1.5, 1.5) * (300.0 if step == 3 else 100.0)
            optimizer.zero_grad()
            F.cross_entropy(model(x.half()).float(), torch.randint(0, 3, (16,))).backward()
            optimizer.step()
    return monitor.report()


if __name__ == "__main__":
    main().print()

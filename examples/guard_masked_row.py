"""Attention with a sample of length zero: its mask hides every key, and softmax of nothing is NaN.

python examples/guard_masked_row.py
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

import nabla


class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, lengths):
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        scores = query @ key.transpose(1, 2) / math.sqrt(x.shape[-1])
        hidden = torch.arange(x.shape[1]) >= lengths[:, None]
        scores = scores.masked_fill(hidden[:, None, :], -math.inf)
        return (scores.softmax(-1) @ value).mean(1)


def main():
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for step in range(5):
            x, y = torch.randn(4, 6, 8), torch.randint(0, 8, (4,))
            lengths = torch.tensor([6, 3, 0 if step == 3 else 2, 5])
            optimizer.zero_grad()
            F.cross_entropy(model(x, lengths), y).backward()
            optimizer.step()
    return monitor.report()


if __name__ == "__main__":
    main().print()

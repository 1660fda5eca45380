"""Which modules may run in half precision, and why the others may not.

    python examples/precision_audit.py
    nabla precision examples/precision_audit.py:build

Two of nine modules are at fault by themselves. Everything behind them looks wrong in a run in half
precision (the numbers in brackets); only the two are named.
"""

import torch
from torch import nn

import nabla


class Centre(nn.Module):
    """Subtracts what it has just added: the digits below 300 are gone in half precision."""

    def forward(self, x):
        return (x + 300.0) - 300.0


class Energy(nn.Module):
    """Its squares are larger than the largest float16."""

    def forward(self, x):
        return (400.0 * x).square() / 160_000.0


def build():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        Centre(),
        nn.Linear(64, 64),
        nn.GELU(),
        Energy(),
        nn.LayerNorm(64),
        nn.Linear(64, 10),
    )
    inputs, labels = torch.randn(128, 64), torch.randint(10, (128,))
    return model, (inputs, labels), nn.CrossEntropyLoss()


def main():
    return nabla.precision(*build(), dtypes=("float16", "bfloat16"))


if __name__ == "__main__":
    report = main()
    report.print()
    print()
    print(report.exclusions("float16"))

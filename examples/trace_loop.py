"""A learning rate that is far too small: seen from inside the loop.

python examples/trace_loop.py
"""

import torch
from torch import nn

import nabla


def main():
    torch.manual_seed(0)
    x = torch.randn(2048, 20)
    labels = (x @ torch.randn(20, 4)).argmax(1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(20, 20), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(20, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)

    with nabla.trace.attach(model, optimizer, every=25) as trace:
        for _ in range(150):
            rows = torch.randint(2048, (64,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
            optimizer.step()
    return trace


if __name__ == "__main__":
    main().print()

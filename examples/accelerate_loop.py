"""A loop with accelerate whose optimizer was made before the head was replaced.

Nothing of nabla is particular to accelerate: its loop is a loop, and nabla.watch sees the steps.

    pip install accelerate
    python examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nabla


def main():
    torch.manual_seed(0)
    x = torch.randn(160, 8)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    loader = DataLoader(TensorDataset(x, labels), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model[2] = nn.Linear(32, 3)  # the planted fault: the optimizer still holds the old head
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with nabla.watch(accelerator.unwrap_model(model), quiet=True) as run:
        for _ in range(5):
            for batch, target in loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.cross_entropy(model(batch), target)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
    report = run.finish()
    report.print()
    return report


if __name__ == "__main__":
    main()

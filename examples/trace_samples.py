"""One sample in other units dominates the batch, and some labels are wrong.

python examples/trace_samples.py
"""

import torch
from torch import nn

import nabla


def main():
    torch.manual_seed(0)
    centres = 3 * torch.randn(4, 20)
    labels = torch.randint(4, (96,))
    x = centres[labels] + torch.randn(96, 20)
    flipped = [7, 31, 60]
    labels[flipped] = (labels[flipped] + 1) % 4
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    loss_fn = nn.CrossEntropyLoss(reduction="none")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        loss_fn(model(x), labels).mean().backward()
        optimizer.step()

    result = nabla.trace.samples(model, loss_fn, (x, labels))
    print("least like their label:", sorted(result.rank("label")[:3]), "flipped:", flipped)

    x[7] *= 100  # one record in other units
    scaled = nabla.trace.samples(model, loss_fn, (x, labels), method="norms")
    return result, scaled


if __name__ == "__main__":
    for shown in main():
        shown.print()

"""Float16 autocast with a gradient scaler that is still looking for its scale: nothing is wrong.

    python examples/guard_healthy_amp.py

The first steps overflow and are skipped, as they should be. The guard stays silent.
"""

import torch
from torch import nn
from torch.nn import functional as F

import nabla


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for _ in range(40):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(x), x[:, :4].argmax(-1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return monitor.report()


if __name__ == "__main__":
    main().print()

"""An auxiliary loss fights the main one: multi-loss geometry, layer by layer.

python examples/trace_losses.py
"""

import torch
from torch import nn

import nabla


def main():
    torch.manual_seed(0)
    trunk, classify, rebuild = nn.Linear(16, 32), nn.Linear(32, 4), nn.Linear(32, 16)
    model = nn.ModuleDict({"trunk": trunk, "classify": classify, "rebuild": rebuild})
    x, labels = torch.randn(64, 16), torch.randint(4, (64,))

    hidden = torch.tanh(trunk(x))
    ce = nn.functional.cross_entropy(classify(hidden), labels)
    spread = -hidden.var(0).mean()  # asks for large activations
    small = hidden.square().mean()  # asks for small ones
    with nabla.trace.losses(
        {"ce": ce, "spread": spread, "small": small}, parameters=model, weights={"spread": 0.9}
    ) as trace:
        (ce + 0.9 * spread + small).backward()

    trace.report(trunk.weight, name="trunk").print()
    return trace


if __name__ == "__main__":
    main().print()

"""A resume that is not the same run: the optimizer's state was not restored."""

import copy
import tempfile

import torch
from torch import nn

import nabla


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Take some steps; nothing of them is recorded by hand."""
    for _ in range(steps):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        (model(x).squeeze(-1) - x.sum(-1)).square().mean().backward()
        optimizer.step()


def main(root: str | None = None):
    """Return the capture of the run that goes on with the first one."""
    model, optimizer = make()
    with nabla.capture(model, optimizer, root=root or tempfile.mkdtemp()) as rec:
        train(model, optimizer, 20)
    saved = copy.deepcopy(model.state_dict())  # the optimizer is forgotten

    model, optimizer = make()
    model.load_state_dict(saved)
    with nabla.capture(model, optimizer, resume=rec.run_path) as resumed:
        train(model, optimizer, 5)
    return resumed


if __name__ == "__main__":
    capture = main()
    print(f"goes on after step {capture.resumed.step}")
    for issue in capture.issues:
        print(f"{issue.rule} {issue.message}")

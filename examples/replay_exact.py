"""Capture a run, and replay it bit by bit: once with the same code, once with a changed module."""

import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import nabla


class Program:
    """A model with dropout, its optimizer, its schedule and its shuffled data."""

    def __init__(self, slope: float = 0.0) -> None:
        torch.manual_seed(0)
        x = torch.randn(256, 8)
        self.model = nn.Sequential(
            nn.Linear(8, 32), nn.LeakyReLU(slope), nn.Dropout(0.1), nn.Linear(32, 3)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)
        data = TensorDataset(x, x[:, :3].argmax(-1))
        self.loader = DataLoader(data, batch_size=32, shuffle=True)

    def step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()


def main(root: str | None = None):
    """Return the result of the exact replay, and that of the program with a changed slope."""
    program = Program()
    with nabla.capture(
        program.model,
        program.optimizer,
        scheduler=program.scheduler,
        loader=program.loader,
        root=root or tempfile.mkdtemp(),
        checkpoint_every=10,
    ) as rec:
        for _ in range(3):
            for batch in program.loader:
                rec.record_step(loss=program.step(batch))
    same = nabla.replay(rec.run_path, build=Program, from_step=14)
    other = nabla.replay(rec.run_path, build=lambda: Program(slope=1e-6), localize=True)
    return same, other


if __name__ == "__main__":
    for result in main():
        result.print()

"""Find the first bad step of a run: by a number that was recorded, and by its state."""

import tempfile

import torch
from torch import nn

import nabla
from nabla_replay import StateView, metric_greater_than

SPIKE = 33


class Program:
    """Linear regression; one sample of one batch is a thousand times too large."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.loader = [torch.randn(8, 4) for _ in range(60)]
        self.loader[SPIKE][3] *= 1000

    def step(self, x: torch.Tensor) -> torch.Tensor:
        loss = (self.model(x).squeeze(-1) - x.sum(-1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def weights_are_large(view: StateView) -> bool:
    """Whether a weight has left the range of a sane solution."""
    return view.model is not None and bool(view.model.weight.abs().max() > 10)


def main(root: str | None = None):
    """Return both searches."""
    program = Program()
    with nabla.capture(
        program.model, program.optimizer, root=root or tempfile.mkdtemp(), checkpoint_every=20
    ) as rec:
        for step, x in enumerate(rec.batches(program.loader)):
            rec.record_step(step=step, loss=program.step(x), batch_indices=[step])
    by_loss = nabla.bisect(rec.run_path, metric_greater_than("loss", 10.0))
    by_state = nabla.bisect(rec.run_path, weights_are_large, build=Program)
    return by_loss, by_state


if __name__ == "__main__":
    for result in main():
        result.print()

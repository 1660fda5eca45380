# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Three small training loops that are trained bare and watched, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["WORKLOADS", "Loop", "Workload"]


class Loop:
    """One model with its optimizer and one batch, trained step by step.

    Args:
        model: takes the inputs.
        x: inputs.
        y: labels, one per row of the model's output.
    """

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        self.model = model.to(x.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self._x, self._y = x, y

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        model, optimizer, x, y = self.model, self.optimizer, self._x, self._y
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A loop that can be made anew.

    Attributes:
        name: how it is chosen.
        summary: what it is.
        make: makes it on a device, the same each time.
        first_steps: steps until whoever watches knows the loop.
        steps: steps of one measurement.
    """

    name: str
    summary: str
    make: Callable[[torch.device], Loop]
    first_steps: int
    steps: int


class Layer(nn.Module):
    """Attention and a feed-forward part, each with its normalisation before it.

    Args:
        width: of the stream.
        heads: of the attention.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream, shape ``[N, T, width]`` as given."""
        rows, length, width = x.shape
        parts = self.queries(self.before(x)).view(rows, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))  # type: ignore[no-any-return]


def _seeded(device: torch.device) -> torch.Generator:
    torch.manual_seed(0)
    return torch.Generator().manual_seed(1)


def _mlp(device: torch.device) -> Loop:
    generator = _seeded(device)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
    model.append(nn.Linear(64, 10))
    x = torch.randn(32, 32, generator=generator)
    return Loop(model, x.to(device), torch.randint(10, (32,), generator=generator).to(device))


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def _cnn(device: torch.device) -> Loop:
    generator = _seeded(device)
    layers = _convolution(3, 16) + _convolution(16, 32) + _convolution(32, 64)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    x = torch.randn(16, 3, 16, 16, generator=generator)
    return Loop(model, x.to(device), torch.randint(10, (16,), generator=generator).to(device))


def _transformer(device: torch.device) -> Loop:
    generator = _seeded(device)
    layers = [Layer(64, 4) for _ in range(2)]
    ends = [nn.LayerNorm(64), nn.Linear(64, 256), nn.Flatten(0, 1)]
    model = nn.Sequential(nn.Embedding(256, 64), *layers, *ends)
    x = torch.randint(256, (4, 48), generator=generator)
    return Loop(model, x.to(device), torch.randint(256, (192,), generator=generator).to(device))


WORKLOADS = (
    Workload(name="mlp", summary="3 linear layers of 64", make=_mlp, first_steps=40, steps=64),
    Workload(
        name="cnn", summary="3 convolutions, batch of 16", make=_cnn, first_steps=32, steps=24
    ),
    Workload(
        name="transformer",
        summary="2 layers of 64, 4 sequences of 48",
        make=_transformer,
        first_steps=32,
        steps=20,
    ),
)
"""From the one whose step costs least to the one whose step costs most."""

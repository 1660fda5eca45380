"""Healthy models: no module is named in any dtype."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

CE = nn.CrossEntropyLoss()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.norm, self.other = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm(self.first(x)))
        out = self.other(self.second(out))
        out += x
        return self.relu(out)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        y, _ = self.mix(x, x, x, need_weights=False)
        return self.head(self.norm(x + y).mean(1))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
        return self.out(scores.softmax(-1) @ self.value(x)).mean(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(50, 8), nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens):
        out, _ = self.cell(self.embed(tokens))
        return self.head(out[:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(30, 16), nn.LayerNorm(16)
        self.out = nn.Linear(16, 30, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.norm(self.embed(tokens)).mean(1))


class Widening(nn.Module):
    """Computes in float32 by itself: its squares would not fit into float16."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Peaked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.soft, self.head = nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.soft(30 * self.inner(x)))


def images(model):
    return model, torch.randn(8, 3, 12, 12)


def features(model, scale=1.0):
    return model, scale * torch.randn(16, 8)


class Jumps(nn.Module):
    """Rounds to tenths: of many inputs a few are on the edge."""

    def forward(self, x):
        return torch.round(10 * x) / 10


class LayerScale(nn.Module):
    """A branch whose gradient is a millionth of the other one: a loss scale holds both."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.full((8,), 1e-6))

    def forward(self, x):
        return x + self.scale * torch.tanh(self.branch(x))


MODELS = {
    "layer scale": lambda: features(nn.Sequential(LayerScale(), nn.Linear(8, 3))),
    "a function that jumps": lambda: (
        nn.Sequential(nn.Linear(8, 8), Jumps(), nn.Linear(8, 3)),
        torch.randn(2048, 8),
    ),
    "BatchNorm": lambda: images(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 3),
        )
    ),
    "residual": lambda: images(
        nn.Sequential(
            nn.Conv2d(3, 4, 1), Residual(), Residual(), nn.Flatten(), nn.Linear(4 * 144, 3)
        )
    ),
    "GroupNorm": lambda: (
        nn.Sequential(
            nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(), nn.Linear(112, 3)
        ),
        torch.randn(6, 4, 16),
    ),
    "depthwise": lambda: images(
        nn.Sequential(
            nn.Conv2d(3, 3, 3, groups=3, padding=1),
            nn.Hardswish(),
            nn.ConvTranspose2d(3, 2, 2, stride=2),
            nn.Flatten(),
            nn.Linear(2 * 576, 3),
        )
    ),
    "attention": lambda: (Attention(), torch.randn(4, 7, 16)),
    "masked scores": lambda: (Masked(), torch.randn(4, 7, 16)),
    "encoder with dropout": lambda: (
        nn.Sequential(
            nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True),
            nn.Flatten(),
            nn.Linear(112, 3),
        ),
        torch.randn(4, 7, 16),
    ),
    "LSTM on integers": lambda: (Recurrent(), torch.randint(50, (6, 9))),
    "widens by itself": lambda: features(
        nn.Sequential(nn.Linear(8, 8), Widening(), nn.Linear(8, 3)), 300.0
    ),
    "peaked softmax": lambda: features(Peaked()),
    "dropout": lambda: features(
        nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
    ),
    "in evaluation mode": lambda: features(
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    ),
    "weight norm": lambda: features(
        nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)),
            nn.ELU(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(16, 3)),
        )
    ),
    "one module twice": lambda: features(
        nn.Sequential(*[nn.Linear(8, 8)] * 3, nn.Tanh(), nn.Linear(8, 3))
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_named(audited, named, name):
    model, inputs = MODELS[name]()

    report = audited(model, inputs, torch.randint(3, (len(inputs),)), loss_fn=CE)

    assert named(report) == []
    assert [entry.reason for entry in report.not_evaluated] == []
    assert report.passed


def test_tied_weights(audited, named):
    report = audited(Tied(), torch.randint(30, (8, 5)), torch.randint(30, (8,)), loss_fn=CE)

    assert named(report) == []


def test_a_model_in_bfloat16(audited, named):
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 3))
    report = audited(
        model.bfloat16(), torch.randn(16, 8).bfloat16(), torch.randint(3, (16,)), loss_fn=CE
    )

    assert named(report) == []


def test_a_dict_with_the_loss_inside(audited, named):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

        def forward(self, tokens, labels=None):
            logits = self.head(self.embed(tokens))
            return {
                "loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()),
                "logits": logits,
            }

    tokens = torch.randint(20, (4, 6))

    report = audited(WithLoss(), {"tokens": tokens, "labels": tokens})

    assert named(report) == []
    assert report.notes == ()


def test_a_gradient_that_is_zero_in_theory(audited, named):
    """The sum of a LayerNorm's outputs does not depend on its inputs."""
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))

    assert named(audited(model, torch.randn(16, 8), loss_fn=lambda out: out.sum())) == []


def test_a_model_at_its_optimum(audited, named):
    inputs = torch.randn(64, 8)
    target = inputs @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
    wide = torch.cat([inputs, torch.ones(64, 1)], 1)
    best = torch.linalg.lstsq(wide, target).solution
    model = nn.Linear(8, 1)
    with torch.no_grad():
        model.weight.copy_(best[:8].T)
        model.bias.copy_(best[8])

    assert named(audited(model, inputs, target, loss_fn=nn.MSELoss())) == []


def test_an_embedding_with_sparse_gradients(audited, named):
    model = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Flatten(), nn.Linear(24, 3))
    report = audited(model, torch.randint(20, (16, 3)), torch.randint(3, (16,)), loss_fn=CE)

    assert named(report) == []
    assert report.not_evaluated == ()

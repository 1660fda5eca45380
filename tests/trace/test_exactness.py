"""The Gram of per-sample gradients equals the one of a loop, for every kind of structure."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import nabla

N, T, D = 6, 4, 8


class Pooled(nn.Module):
    """Applies something to a sequence, then classifies the mean over its positions."""

    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(D, 5)

    def forward(self, x):
        out = self.body(x)
        return self.head((out[0] if isinstance(out, tuple) else out).mean(1))


class Call(nn.Module):
    """A module of a function that takes itself and x; keyword arguments become members."""

    def __init__(self, function, **members):
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, x):
        return self.function(self, x)


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.3)


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale * 2

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return grad * scale * 2, (grad * x * 2).sum((0, 1))


def tied(m, x):
    return F.linear(torch.relu(m.a(x)), m.a.weight.t())


def lora(m, x):
    return F.linear(x, m.w.weight + m.up @ m.down, m.w.bias)


def class_token(m, x):
    tokens = torch.cat([m.token.expand(len(x), -1, -1), x + m.position], 1)
    return tokens @ m.w


def assigned(m, x):
    y = x.clone()
    y[:, 0] = m.token
    return m.a(y)


def time_major(m, x):
    turned = x.transpose(0, 1)
    return m.a(turned.reshape(-1, D)).view(T, len(x), D).transpose(0, 1)


def in_place(m, x):
    y = m.a(x)
    y += m.position
    return F.relu(y, inplace=True)


def cells(m, x):
    """Each state of the cell is made from the other one, and both go on."""
    h = m.start.expand(len(x), -1)
    c, states = torch.zeros_like(h), []
    for t in range(T):
        h, c = m.lstm(x[:, t], (h, c))
        states.append(m.gru(c, h))
    return torch.stack(states, 1)


SEQUENCES = {
    "linear on a sequence": lambda: nn.Linear(D, D),
    "linear without bias": lambda: nn.Linear(D, D, bias=False),
    "module used twice": lambda: Call(lambda m, x: m.a(torch.relu(m.a(x))), a=nn.Linear(D, D)),
    "weight tied to its transpose": lambda: Call(tied, a=nn.Linear(D, D)),
    "low rank update": lambda: Call(
        lora, w=nn.Linear(D, D), up=parameter(D, 2), down=parameter(2, D)
    ),
    "class token and position": lambda: Call(
        class_token, token=parameter(1, 1, D), position=parameter(1, T, D), w=parameter(D, D)
    ),
    "token written in place": lambda: Call(assigned, token=parameter(D), a=nn.Linear(D, D)),
    "time-major flattening": lambda: Call(time_major, a=nn.Linear(D, D)),
    "time-first layer": lambda: Call(
        lambda m, x: m.a(x.transpose(0, 1)).transpose(0, 1), a=nn.Linear(D, D)
    ),
    "written in place": lambda: Call(in_place, a=nn.Linear(D, D), position=parameter(T, D)),
    "scale and shift": lambda: Call(
        lambda m, x: torch.tanh(x * m.scale) + m.shift, scale=parameter(D), shift=parameter(1)
    ),
    "layer scale, subtraction, division": lambda: Call(
        lambda m, x: (x - m.a) / (1 + m.b**2), a=parameter(D), b=parameter(T, 1)
    ),
    "einsum": lambda: Call(lambda m, x: torch.einsum("ntd,de->nte", x, m.w), w=parameter(D, D)),
    "layer norm": lambda: nn.LayerNorm(D),
    "layer norm over two axes": lambda: nn.LayerNorm((T, D)),
    "root mean square norm": lambda: nn.RMSNorm(D),
    "attention": lambda: Call(
        lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(D, 2, batch_first=True)
    ),
    "attention, time first": lambda: Call(
        lambda m, x: m.a(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1), a=nn.MultiheadAttention(D, 2)
    ),
    "transformer layer": lambda: nn.TransformerEncoderLayer(
        D, 2, 16, dropout=0.0, batch_first=True
    ),
    "transformer layer with dropout": lambda: nn.TransformerEncoderLayer(
        D, 2, 16, batch_first=True
    ),
    "recurrent": lambda: nn.LSTM(D, D, batch_first=True),
    "recurrent, two layers": lambda: nn.GRU(D, D, num_layers=2, batch_first=True),
    "recurrent cells": lambda: Call(
        cells, lstm=nn.LSTMCell(D, D), gru=nn.GRUCell(D, D), start=parameter(D)
    ),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(D, D)),
    "weight norm without bias": lambda: nn.utils.parametrizations.weight_norm(
        nn.Linear(D, D, bias=False)
    ),
    "custom function": lambda: Call(lambda m, x: Doubling.apply(x, m.s), s=parameter(D)),
    "two dropouts": lambda: nn.Sequential(
        nn.Dropout(0.5), nn.Linear(D, D), nn.ReLU(), nn.Dropout(0.5), nn.Linear(D, D)
    ),
    "checkpointed": lambda: Call(
        lambda m, x: checkpoint(m.a, x, use_reentrant=False),
        a=nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)),
    ),
    "called with keywords": lambda: Call(lambda m, x: m.a(input=x), a=nn.Linear(D, D)),
    "gate of a parameter of no axes": lambda: Call(
        lambda m, x: x * torch.sigmoid(m.g), g=nn.Parameter(torch.tensor(0.3))
    ),
    "prelu": lambda: nn.PReLU(),
    "bilinear": lambda: Call(lambda m, x: m.a(x, x), a=nn.Bilinear(D, D, D)),
    "loop over positions": lambda: Call(
        lambda m, x: torch.stack([m.a(x[:, t]) for t in range(T)], 1), a=nn.Linear(D, D)
    ),
    "looked up table": lambda: Call(
        lambda m, x: x + m.table[(x.sum(-1) > 0).long()], table=parameter(2, D)
    ),
    "normalised weight": lambda: Call(
        lambda m, x: F.linear(x, F.normalize(m.w, dim=1)), w=parameter(D, D)
    ),
    "masked weight": lambda: Call(
        lambda m, x: x @ (m.w * torch.ones(D, D).tril().to(x)), w=parameter(D, D)
    ),
    "stacked experts": lambda: Call(
        lambda m, x: torch.stack([F.linear(x, w) for w in m.w.unbind(0)]).mean(0),
        w=parameter(3, D, D),
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_gram_of_sequence_models(name, truth):
    model = Pooled(SEQUENCES[name]()).double()
    x, y = torch.randn(N, T, D).double(), torch.randint(5, (N,))
    rows = truth.rows(model, truth.loss, x, y)

    result = nabla.trace.samples(model, truth.loss, (x, y), every_layer=True)

    assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert not result.missing
    parts = sum(result.layers.values())
    assert truth.error(parts, rows @ rows.T) < 1e-12
    norms = nabla.trace.samples(model, truth.loss, (x, y), method="norms").norms
    assert truth.error(norms, rows.norm(dim=1)) < 1e-12


def images(*layers, channels=6):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


IMAGES = {
    "conv": lambda: images(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU()),
    "conv, stride, dilation": lambda: images(nn.Conv2d(3, 6, 3, stride=2, dilation=2, padding=3)),
    "conv, same": lambda: images(nn.Conv2d(3, 6, (2, 3), padding="same")),
    "conv, circular": lambda: images(nn.Conv2d(3, 6, 3, padding=1, padding_mode="circular")),
    "conv, groups": lambda: images(nn.Conv2d(3, 6, 3, groups=3)),
    "conv, no bias, one by one": lambda: images(nn.Conv2d(3, 6, 1, bias=False)),
    "transposed": lambda: images(nn.ConvTranspose2d(3, 6, 3, stride=2, output_padding=1)),
    "transposed, groups": lambda: images(nn.ConvTranspose2d(3, 6, 3, groups=3, dilation=2)),
    "group norm": lambda: images(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(inplace=True)),
    "instance norm": lambda: images(nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6, affine=True)),
    "batch norm, evaluating": lambda: images(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)).eval(),
    "conv over frames": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 1)),
        nn.Flatten(0, 1),
        nn.Conv2d(1, 2, 3),
        nn.Unflatten(0, (-1, 3)),
        nn.Flatten(1),
        nn.Linear(3 * 2 * 36, 5),
    ),
    "one-dimensional": lambda: nn.Sequential(
        nn.Flatten(2),
        nn.Conv1d(3, 6, 5, stride=2),
        nn.ConvTranspose1d(6, 4, 3),
        nn.Flatten(),
        nn.LazyLinear(5),
    ),
    "three-dimensional": lambda: nn.Sequential(
        nn.Unflatten(2, (2, 4)),
        nn.Conv3d(3, 4, 2),
        nn.ConvTranspose3d(4, 2, 2),
        nn.Flatten(),
        nn.LazyLinear(5),
    ),
    "spectral norm": lambda: images(
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 6, 3))
    ).eval(),
}


@pytest.mark.parametrize("name", IMAGES)
def test_gram_of_image_models(name, truth):
    model = IMAGES[name]().double()
    x, y = torch.randn(N, 3, 8, 8).double(), torch.randint(5, (N,))
    model(x)
    rows = truth.rows(model, truth.loss, x, y)

    result = nabla.trace.samples(model, truth.loss, (x, y))

    assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert not result.missing


class Tokens(nn.Module):
    def __init__(self, *, tied=False, **embedding):
        super().__init__()
        self.tokens = nn.Embedding(11, D, **embedding)
        self.positions, self.norm = nn.Embedding(T, D), nn.LayerNorm(D)
        self.head = nn.Linear(D, 11, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x):
        positions = torch.arange(x.shape[1])  # no axis of samples
        return self.head(self.norm(torch.relu(self.tokens(x) + self.positions(positions))))


@pytest.mark.parametrize(
    "options", [{}, {"tied": True}, {"padding_idx": 2}, {"scale_grad_by_freq": True}]
)
def test_gram_of_token_models(options, truth):
    model, x = Tokens(**options).double(), torch.randint(11, (N, T))
    rows = truth.rows(model, truth.loss, x, x)
    if options.get("scale_grad_by_freq"):
        rows = None  # the count of the whole batch scales each row: no gradient of a loss

    result = nabla.trace.samples(model, truth.loss, (x, x))

    if rows is not None:
        assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert not result.missing


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5])
def test_small_batches(samples, mlp, truth):
    x, y = torch.randn(samples, 6).double(), torch.randint(3, (samples,))
    rows = truth.rows(mlp, truth.loss, x, y)

    assert truth.error(nabla.trace.samples(mlp, truth.loss, (x, y)).gram, rows @ rows.T) < 1e-12


def test_as_many_positions_as_samples(truth):
    model = Call(
        lambda m, x: m.head(m.a(x.transpose(0, 1)).mean(0)), a=nn.Linear(D, D), head=nn.Linear(D, 5)
    )
    model, x, y = model.double(), torch.randn(N, N, D).double(), torch.randint(5, (N,))
    rows = truth.rows(model, truth.loss, x, y)

    assert truth.error(nabla.trace.samples(model, truth.loss, (x, y)).gram, rows @ rows.T) < 1e-12


def test_sequence_first_inputs(truth):
    model = Call(
        lambda m, x: m.head(m.a(x)[0].mean(0)), a=nn.LSTM(D, D), head=nn.Linear(D, 5)
    ).double()
    x, y = torch.randn(T, N, D).double(), torch.randint(5, (N,))
    rows = truth.rows(model, truth.loss, x, y)

    assert truth.error(nabla.trace.samples(model, truth.loss, (x, y)).gram, rows @ rows.T) < 1e-12


def test_unused_and_frozen_parameters_add_nothing(mlp, truth):
    mlp.extra, mlp[0].weight.requires_grad = nn.Linear(2, 2), False
    model = Call(lambda m, x: m.net[2](m.net[1](m.net[0](x))), net=mlp)
    x, y = torch.randn(N, 6).double(), torch.randint(3, (N,))
    rows = truth.rows(model, truth.loss, x, y)

    result = nabla.trace.samples(model, truth.loss, (x, y))

    assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert result.coverage["net.extra.weight"] == "no gradient"


def test_a_loss_that_compares_samples_is_traced_sample_by_sample(truth):
    model = nn.Linear(D, D).double()
    x, y = torch.randn(N, D).double(), torch.arange(N)

    def contrastive(output, target):
        return F.cross_entropy(output @ output.T, target, reduction="none")

    rows = truth.rows(model, contrastive, x, y)
    result = nabla.trace.samples(model, contrastive, (x, y))

    assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert set(result.coverage.values()) == {"loop"}
    assert [issue.rule for issue in result.issues if issue.rule == "GEO903"]


def test_batch_norm_is_decomposed_and_said_to_couple(truth):
    model = images(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)).double()
    x, y = torch.randn(N, 3, 8, 8).double(), torch.randint(5, (N,))
    total = truth.rows(model, truth.loss, x, y).sum(0)

    result = nabla.trace.samples(model, truth.loss, (x, y))

    assert float(result.gram.sum()) == pytest.approx(float(total @ total), rel=1e-10)
    assert "GEO902" in {issue.rule for issue in result.issues}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype, truth):
    model = Pooled(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)))
    x, y = torch.randn(N, T, D), torch.randint(5, (N,))
    rows = truth.rows(model.double(), truth.loss, x.double(), y)

    result = nabla.trace.samples(model.to(dtype), truth.loss, (x.to(dtype), y))

    assert truth.error(result.gram, rows @ rows.T) < (1e-6 if dtype is torch.float32 else 0.05)
    assert not result.missing and "loop" not in result.coverage.values()


def test_autocast(truth):
    model = Pooled(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)))
    x, y = torch.randn(N, T, D), torch.randint(5, (N,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = truth.rows(model, truth.loss, x, y)
        result = nabla.trace.samples(model, truth.loss, (x, y))

    assert truth.error(result.gram, rows @ rows.T) < 0.05


def test_sketch_is_close_on_a_sequence_model(truth):
    width = 96
    body = nn.Sequential(
        nn.Linear(D, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, D)
    )
    model, x, y = Pooled(body), torch.randn(12, T, D), torch.randint(5, (12,))
    exact = nabla.trace.samples(model, truth.loss, (x, y))
    sketch = nabla.trace.samples(model, truth.loss, (x, y), method="sketch", sketch_size=64)

    assert float((exact.cosines - sketch.cosines).abs().mean()) < 0.1
    assert "loop" not in sketch.coverage.values()  # it was not held against what it is only near


def test_forward_mode_gives_the_row_sums(mlp, truth):
    x, y = torch.randn(N, 6).double(), torch.randint(3, (N,))
    rows = truth.rows(mlp, truth.loss, x, y)

    found = nabla.trace.samples(mlp, truth.loss, (x, y), method="jvp").projections

    assert truth.error(found, rows @ rows.mean(0)) < 1e-12

"""Faults planted at each depth of four architectures: where and when they began."""

import random
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, 16)
        self.first, self.second, self.third = (nn.LSTM(16, 16, batch_first=True) for _ in "123")
        self.mid = nn.Linear(16, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        h = self.inp(x)
        for layer in (self.first, self.second, self.third):
            h, _ = layer(h)
        return self.out(torch.tanh(self.mid(h[:, -1])))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = nn.GELU()

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.fc2(self.act(self.fc1(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, width=24, depth=4):
        super().__init__()
        self.emb = nn.Embedding(20, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, 20)

    def forward(self, x):
        h = self.emb(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln(h)).flatten(0, 1)


def mlp():
    model = nn.Sequential(*(part for _ in range(12) for part in (nn.Linear(16, 16), nn.ReLU())))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*model, nn.Linear(16, 4))


def cnn():
    widths = [3, *[8] * 6]
    body = [
        part
        for before, after in zip(widths, widths[1:], strict=False)
        for part in (nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
    ]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


MODELS = {"mlp": mlp, "cnn": cnn, "gpt": GPT, "lstm": Recurrent}
SHAPES = {"mlp": (32, 16), "cnn": (8, 3, 8, 8), "lstm": (16, 6, 8)}
WEIGHTED = nn.Linear, nn.Conv2d, nn.LSTM, nn.Embedding


def batch(kind, generator):
    if kind == "gpt":
        tokens = torch.randint(0, 20, (8, 9), generator=generator)
        return tokens[:, :-1], tokens[:, 1:].flatten()
    shape = SHAPES[kind]
    x = torch.randn(shape, generator=generator)
    return x, torch.randint(0, 4, shape[:1], generator=generator)


def depths(kind):
    return [name for name, part in MODELS[kind]().named_modules() if isinstance(part, WEIGHTED)]


def changed(output, fault):
    """What a layer gives while the fault is on."""
    if isinstance(output, tuple):
        return tuple(changed(part, fault) for part in output)
    tensor = output
    if fault == "nan":
        tensor = torch.where(tensor == tensor.max(), (tensor - tensor.max() - 1.0).log(), tensor)
    elif fault == "inf":
        tensor = torch.where(tensor == tensor.max(), tensor.abs().add(1.0) / 0.0, tensor)
    elif fault == "explosion":
        tensor = tensor * 1e6
    elif fault == "dead":
        tensor = tensor * 0.0
    return tensor


@torch.no_grad()
def damage(layer, fault):
    """Change the weights of a layer for good."""
    for parameter in layer.parameters():
        parameter.mul_(1e6 if fault == "heavy" else 0.0)
    if fault == "sunk":
        layer.bias.fill_(-10.0)


def train(kind, layer, fault, at, after=10):
    torch.manual_seed(at)
    model = MODELS[kind]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(at)
    target = dict(model.named_modules())[layer]
    active = []
    target.register_forward_hook(lambda _, args, out: changed(out, fault) if active else None)
    with nabla.guard(model, optimizer=optimizer) as monitor:
        for step in range(at + after):
            if step == at:
                active.append(1)
                if fault in ("heavy", "sunk"):
                    damage(target, fault)
            x, y = batch(kind, generator)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return monitor.explain()


def cases():
    """Every depth with every fault that it can have."""
    for kind in MODELS:
        for layer in depths(kind):
            recurrent = kind == "lstm" and layer in ("first", "second", "third")
            for fault in ("nan", "explosion", "dead", "heavy"):
                if recurrent and fault == "heavy":
                    continue  # its outputs are bounded: it saturates
                yield kind, layer, fault, random.Random(f"{kind} {layer} {fault}").randrange(20, 45)
            if kind in ("mlp", "cnn"):
                yield kind, layer, "inf", random.Random(f"{kind} {layer} inf").randrange(20, 45)
            if kind == "mlp" and layer != "24":
                yield kind, layer, "sunk", random.Random(f"{layer} sunk").randrange(20, 45)


def found(kind, layer, fault, at):
    best = train(kind, layer, fault, at).best
    return ("", -1) if best is None else (best.root.layer, best.root.first_step)


@pytest.mark.parametrize(
    ("kind", "layer", "fault", "at"),
    [
        ("mlp", "10", "nan", 21),
        ("mlp", "8", "sunk", 20),
        ("cnn", "6", "explosion", 21),
        ("cnn", "9", "dead", 20),
        ("gpt", "blocks.2.fc1", "explosion", 22),
        ("gpt", "blocks.1.proj", "dead", 20),
        ("lstm", "second", "nan", 20),
        ("lstm", "mid", "explosion", 21),
    ],
)
def test_the_origin_is_where_the_fault_was_planted(kind, layer, fault, at):
    assert found(kind, layer, fault, at) == (layer, at)


@pytest.mark.slow
def test_the_origin_is_right_at_each_depth_of_four_architectures():
    right, wrong = Counter(), []
    for case in cases():
        if found(*case) == (case[1], case[3]):
            right[case[0], case[2]] += 1
        else:
            wrong.append((*case, found(*case)))

    print(right, wrong)
    assert len(wrong) <= 0.05 * (len(wrong) + right.total())

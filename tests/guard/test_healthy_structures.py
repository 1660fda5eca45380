"""Healthy models and loops of further kinds: nothing is reported, and no loss changes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS = []


def healthy(function):
    """Note a healthy program: it hands its losses to ``log``."""
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def pairs(steps=6, size=8, width=6, classes=3):
    return [(torch.randn(size, width), torch.randint(0, classes, (size,))) for _ in range(steps)]


def mlp(*between):
    return nn.Sequential(nn.Linear(6, 12), *(between or (nn.ReLU(),)), nn.Linear(12, 3))


def fit(log, model, loss=None, optimizer=None, batches=None):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-2)
    loss = loss or (lambda model, x, y: F.cross_entropy(model(x), y))
    for batch in batches or pairs():
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        log(value)


@healthy
def closure_with_a_line_search(log):
    model = nn.Linear(6, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    x = torch.randn(16, 6)
    target = x @ torch.randn(6, 1)

    def closure():
        optimizer.zero_grad()
        value = F.mse_loss(model(x), target)
        value.backward()
        return value

    for _ in range(3):
        log(optimizer.step(closure))


@healthy
def averaged_copy(log):
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-1, momentum=0.9)
    for x, y in pairs():
        optimizer.zero_grad()
        value = F.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        average.update_parameters(model)
        log(value)


@healthy
def denoising_with_random_noise_levels(log):
    def loss(model, x, y):
        time = torch.rand(len(x), 1)
        noise = torch.randn_like(x[:, :3])
        noisy = x.clone()
        noisy[:, :3] = (1 - time).sqrt() * x[:, :3] + time.sqrt() * noise
        return F.mse_loss(model(noisy), noise)

    fit(log, mlp(nn.SiLU()), loss)


@healthy
def recurrence_with_packed_sequences(log):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTM(6, 8, batch_first=True, num_layers=2, dropout=0.1)
            self.head = nn.Linear(8, 3)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            _, (hidden, _) = self.cell(packed)
            return self.head(hidden[-1])

    batches = [
        (torch.randn(4, 5, 6), torch.randint(1, 6, (4,)), torch.randint(0, 3, (4,)))
        for _ in range(5)
    ]
    fit(log, Reader(), lambda m, x, n, y: F.cross_entropy(m(x, n), y), batches=batches)


@healthy
def truncated_backpropagation_through_time(log):
    cell, head = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], 1e-2)
    state = None
    for _ in range(6):
        out, state = cell(torch.randn(4, 5, 6), state)
        value = F.cross_entropy(head(out).flatten(0, 1), torch.randint(0, 3, (20,)))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        state = state.detach()
        log(value)


class Experts(nn.Module):
    """Each sample goes to one expert; the last expert is idle in most batches."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))

    def forward(self, x):
        weight = self.gate(x).softmax(-1)
        chosen = weight[:, :3].argmax(-1)
        out = x.new_zeros(len(x), 3)
        for index, expert in enumerate(self.experts):
            mine = chosen == index
            if len(x) == 1 or mine.any():
                out[mine] = expert(x[mine]) * weight[mine, index, None]
        return out + 0.0 * sum(p.sum() for p in self.experts.parameters())


@healthy
def mixture_with_idle_experts(log):
    fit(log, Experts())


@healthy
def tied_weights(log):
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.mix = nn.Linear(8, 8)
            self.out = nn.Linear(8, 20, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids):
            return self.out(self.mix(self.words(ids)).tanh())

    def loss(model, ids):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    batches = [(torch.randint(0, 20, (4, 7)),) for _ in range(6)]
    fit(log, Language(), loss, batches=batches)


@healthy
def compiled_model(log):
    fit(log, torch.compile(mlp(), backend="eager"), batches=pairs(4))


@healthy
def contrastive_learning_with_a_momentum_encoder(log):
    query = nn.Linear(6, 4)
    key = copy.deepcopy(query).requires_grad_(False)
    optimizer = torch.optim.SGD(query.parameters(), 1e-2)
    own = torch.eye(8, dtype=torch.bool)
    for x, _ in pairs():
        left = F.normalize(query(x + 0.1 * torch.randn_like(x)), dim=-1)
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
            right = F.normalize(key(x), dim=-1)
        far = (left @ right.T / 0.1).masked_fill(own, float("-inf"))
        value = (far.logsumexp(-1) - (left * right).sum(-1) / 0.1).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        log(value)


@healthy
def frozen_backbone_and_layer_wise_rates(log):
    model = mlp(nn.LayerNorm(12), nn.ReLU())
    model[0].requires_grad_(False)
    groups = [{"params": model[1].parameters(), "lr": 1e-4}, {"params": model[3].parameters()}]
    fit(log, model, optimizer=torch.optim.AdamW(groups, 1e-2))


@pytest.mark.parametrize("mode", ["standard", "light", "deep"])
@pytest.mark.parametrize("run", PROGRAMS)
def test_nothing_is_reported_and_nothing_changes(loud_issues_of, run, mode):
    loud = loud_issues_of(run, mode=mode)
    if mode == "standard":
        assert not [f"{issue.rule} {issue.message}" for issue in loud]

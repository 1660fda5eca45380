"""Healthy programs of every usual kind: nothing is reported by any plugin, and no loss changes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

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


class Attention(nn.Module):
    """One head with a mask by hand."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 18)
        self.head = nn.Linear(6, 3)

    def forward(self, x, hidden):
        query, key, value = self.mix(x).chunk(3, -1)
        scores = (query @ key.transpose(-1, -2)).masked_fill(hidden, float("-inf"))
        return self.head(scores.softmax(-1) @ value).mean(1)


@healthy
def bfloat16_autocast(log):
    model = mlp()

    def loss(model, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x), y)

    fit(log, model, loss)


@healthy
def half_precision_with_the_warm_up_of_a_scaler(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=4)
    for x, y in pairs(10):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = F.cross_entropy(model(x), y)
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        log(value)


@healthy
def causal_mask(log):
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    batches = [(torch.randn(4, 5, 6), torch.randint(0, 3, (4,))) for _ in range(6)]
    fit(log, Attention(), lambda m, x, y: F.cross_entropy(m(x, hidden), y), batches=batches)


@healthy
def padding_mask(log):
    batches = []
    for _ in range(6):
        lengths = torch.randint(1, 6, (4,))
        hidden = torch.arange(5)[None] >= lengths[:, None]
        batches.append((torch.randn(4, 5, 6), hidden[:, None], torch.randint(0, 3, (4,))))
    fit(log, Attention(), lambda m, x, h, y: F.cross_entropy(m(x, h), y), batches=batches)


@healthy
def checkpointing_of_both_kinds(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 6)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Dropout(0.2)) for _ in range(2)
            )
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            x = self.first(x)
            for reentrant, block in zip((True, False), self.blocks, strict=True):
                x = x + checkpoint(block, x, use_reentrant=reentrant)
            return self.head(x)

    fit(log, Net())


@healthy
def adversarial_pair(log):
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
    critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    makes = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.9))
    judges = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))
    for _ in range(6):
        real, noise = torch.randn(8, 6), torch.randn(8, 4)
        judges.zero_grad()
        fake = generator(noise).detach()
        value = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
        value.backward()
        judges.step()
        makes.zero_grad()
        other = F.softplus(-critic(generator(noise))).mean()
        other.backward()
        makes.step()
        log(value, other)


@healthy
def critic_with_a_gradient_penalty(log):
    critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(critic.parameters(), 1e-3)
    for _ in range(6):
        real, fake = torch.randn(8, 6), torch.randn(8, 6)
        share = torch.rand(8, 1)
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        value = critic(fake).mean() - critic(real).mean() + 10 * penalty
        value.backward()
        optimizer.step()
        log(value)


@healthy
def policy_gradient_with_forbidden_actions(log):
    policy = mlp(nn.Tanh())
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    for _ in range(6):
        state = torch.randn(8, 6)
        allowed = torch.rand(8, 3) > 0.3
        allowed[:, 0] = True
        logits = policy(state).masked_fill(~allowed, float("-inf"))
        choice = torch.distributions.Categorical(logits=logits)
        action = choice.sample()
        reward = torch.randn(8)
        value = -(choice.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        log(value)


@healthy
def dropout(log):
    fit(log, mlp(nn.ReLU(), nn.Dropout(0.5)))


@healthy
def accumulation_over_micro_batches(log):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs(12)):
        value = F.cross_entropy(model(x), y) / 4
        value.backward()
        if step % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        log(value)


@healthy
def batch_norm_with_tiny_batches(log):
    fit(log, mlp(nn.BatchNorm1d(12), nn.ReLU()), batches=pairs(size=2))


@healthy
def sparse_embeddings(log):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.EmbeddingBag(50, 6, mode="mean", sparse=True)
            self.head = nn.Linear(6, 3)

        def forward(self, ids):
            return self.head(self.words(ids))

    model = Bag()
    rare = torch.optim.SparseAdam(model.words.parameters(), 1e-2)
    dense = torch.optim.Adam(model.head.parameters(), 1e-2)
    for _ in range(6):
        ids, y = torch.randint(0, 50, (8, 4)), torch.randint(0, 3, (8,))
        rare.zero_grad()
        dense.zero_grad()
        value = F.cross_entropy(model(ids), y)
        value.backward()
        rare.step()
        dense.step()
        log(value)


@healthy
def log_sum_exp_over_masked_alternatives(log):
    def loss(model, x, y):
        scores = model(x).masked_fill(torch.tensor([False, True, False]), float("-inf"))
        return (torch.logsumexp(scores, -1) - scores[:, 0]).mean()

    fit(log, mlp(), loss)


@healthy
def nan_to_num_on_purpose(log):
    def loss(model, x, y):
        ratio = torch.nan_to_num(x[:, :3] / x[:, 3:].relu(), nan=0.0, posinf=0.0, neginf=0.0)
        return F.mse_loss(model(x), ratio)

    fit(log, mlp(), loss)


@pytest.mark.parametrize("mode", ["standard", "light", "deep"])
@pytest.mark.parametrize("run", PROGRAMS)
def test_nothing_is_reported_and_nothing_changes(loud_issues_of, run, mode):
    loud = loud_issues_of(run, mode=mode)
    if mode == "standard":
        assert not [f"{issue.rule} {issue.message}" for issue in loud]

"""Weights that an optimizer, or a write by hand, has made bad: whose, where and when."""

import math

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F

LATE = 37  # deep in a calm loop

program = PROGRAMS = Programs()


def pairs(steps=5, size=8, width=6, classes=3):
    return [(torch.randn(size, width), torch.randint(0, classes, (size,))) for _ in range(steps)]


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def fit(log, model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        log(value)
    log(*model.parameters())


@program("NUM105", "optimizer", "AdamW.step", 0, parameter="0.weight")
def half_eps_foreach(log):
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).half()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-8, foreach=True)
    for x, y in pairs():
        x = x.half()
        x[:, 2] = 0
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "Adam.step", 1, parameter="emb.weight")
def fused_eps_zero(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, i):
            return self.head(self.emb(i).mean(1))

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, eps=0.0, fused=True)
    for step in range(5):
        i = torch.arange(10).reshape(2, 5) if step == 0 else torch.randint(0, 4, (2, 5))
        y = torch.randint(0, 3, (2,))
        if step == 1:
            optimizer.state.clear()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(i), y)
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "RMSprop.step", None, parameter="weight")  # by rounding
def centred_rmsprop(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-4, alpha=0.3, centered=True, eps=0.0)
    x = torch.randn(8, 6)
    for _step in range(40):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "SGD.step", 3, parameter="weight")
def nan_rate_from_a_schedule(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    s = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda e: 1.0 if e < 3 else float("inf") - float("inf")
    )
    for x, y in pairs(6):
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()  # born
        s.step()
        log(loss)


@program("NUM105", "optimizer", "Normalised.step", 2, parameter="tail.bias")
def own_optimizer_with_zero_norm(log):
    class Normalised(torch.optim.Optimizer):
        def __init__(self, p, lr):
            super().__init__(p, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is not None:
                        p.sub_(g["lr"] * p.grad / p.grad.norm())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(6, 3)
            self.tail = nn.Linear(6, 3)

        def forward(self, x, on):
            return self.body(x) + on * self.tail(x)

    model = Net()
    optimizer = Normalised(model.parameters(), 1e-2)
    with torch.no_grad():
        pass
    for step, (x, y) in enumerate(pairs()):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, 0.0 if step == 2 else 1.0), y)
        loss.backward()
        if step == 2:
            model.tail.weight.grad.fill_(1.0)
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "Adagrad.step", 0, parameter="0.weight")
def adagrad_without_eps(log):
    model = nn.Sequential(nn.Linear(6, 3))
    optimizer = torch.optim.Adagrad(model.parameters(), 1e-2, eps=0.0)
    for x, y in pairs():
        x[:, 1] = 0
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "SGD.step", 1)
def runaway_rate(log):
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e3)
    for x, _ in pairs(8):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "SGD.step", 2, parameter="weight")
def tensor_rate_nan(log):
    model = nn.Linear(6, 3)
    r = torch.tensor(0.1)
    optimizer = torch.optim.SGD(model.parameters(), r, momentum=0.9)
    for step, (x, y) in enumerate(pairs()):
        if step == 2:
            r.fill_(math.nan)
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "Adam.step", 27, parameter="weight")
def rate_nan_deep_in_the_calm(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs(40)):
        for g in optimizer.param_groups:
            g["lr"] = 1e-2 if step != 27 else math.nan
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()  # born
        log(loss)


@program("NUM105", "optimizer", "Adam.step", 0, parameter="weight")
def clamped_after_the_step(log):
    model = nn.Linear(6, 3, bias=False).half()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, eps=1e-8)
    for x, y in pairs():
        x[:, 2] = 0
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.half()).float(), y)
        loss.backward()
        optimizer.step()  # born
        for p in model.parameters():
            p.data.clamp_(-1, 1)
        log(loss)


@program("NUM105", "parameter", None, 2, parameter="bias")
def weight_norm_by_hand(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs()):
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)
        with torch.no_grad():
            model.bias.mul_(0.0 if step == 2 else 1.0)
            model.bias.div_(model.bias.norm())  # born


@program("NUM105", "parameter", None, 1, parameter="weight")
def data_assigned_by_hand(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs()):
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)
        if step == 1:
            model.weight.data = model.weight.data / (model.weight.data.sum() * 0)  # born


@program("NUM105", "parameter", "bias", 2, module="", parameter="bias")
def soft_update_of_a_target_network(log):
    q = nn.Linear(6, 2)
    tq = nn.Linear(6, 2)
    optimizer = torch.optim.Adam(q.parameters(), 1e-3)
    for step in range(6):
        s, n = torch.randn(8, 6), torch.randn(8, 6)
        with torch.no_grad():
            t = 0.9 * tq(n).max(-1).values
        loss = F.smooth_l1_loss(q(s)[:, 0], t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(loss)
        tau = math.nan if step == 2 else 0.01
        with torch.no_grad():
            for a, batches in zip(tq.parameters(), q.parameters(), strict=False):
                a.mul_(1 - tau).add_(batches, alpha=tau)  # born


@program("NUM105", "parameter", "mean", 3, module="", parameter="mean")
def a_running_mean_kept_by_the_loop(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(6))
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x - self.mean)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs()):
        sel = x[x[:, 0] > (9 if step == 3 else -9)]
        model.mean.lerp_(sel.mean(0), 0.1)  # born
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM105", "parameter", None, 37, parameter="0.weight")
def late_write_by_hand(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs(45)):
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)
        if step == LATE:
            with torch.no_grad():
                model[0].weight.div_(torch.zeros(()))  # born


@program("NUM105", "parameter", "0.bias", 1, module="0", parameter="0.bias")
def rate_nan_in_an_update_by_hand(log):
    model = mlp()
    for step, (x, y) in enumerate(pairs()):
        lr = 0.1 if step != 1 else math.nan
        loss = classify(model, x, y)
        model.zero_grad()
        loss.backward()
        log(loss)
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad  # born


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_cause_of_bad_weights_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op) == (rule, phase, op), issue.message
    assert step in (None, issue.step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message

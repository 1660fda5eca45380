"""Births where code runs again or elsewhere: recomputed, derived twice, before the model."""

import math
from dataclasses import dataclass

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

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


@program("NUM101", "forward", "reciprocal", 2, module="inv", sample=5)
def custom_function_forward(log):
    class Inv(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.reciprocal()  # born
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return -g * y * y

    class Inverse(nn.Module):
        def forward(self, x):
            return Inv.apply(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inv = Inverse()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.inv(x))

    batches = pairs()
    batches[2][0][5, 5] = 0
    fit(log, Net(), classify, batches)


@program("NUM102", "backward", "SqrtBackward0", 2, module="block", sample=1)
def recompute_reentrant(log):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6, bias=False)

        def forward(self, x):
            return self.layer(x).square().sum(-1).sqrt()  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pre = nn.Linear(6, 6, bias=False)
            self.block = Block()

        def forward(self, x):
            return checkpoint(self.block, self.pre(x), use_reentrant=True)

    batches = [(x,) for x, _ in pairs()]
    batches[2][0][1] = 0
    fit(log, Net(), lambda model, x: model(x).mean(), batches)


@program("NUM102", "backward", "LogBackward0", 1, module="block", sample=7)
def non_reentrant_recompute(log):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(6))

        def forward(self, x):
            h = self.w * x
            return torch.where(h > 0, torch.log(h), torch.zeros_like(h))  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=False))

    batches = [(x.abs() + 0.1, y) for x, y in pairs()]
    batches[1][0][7, 0] = 0
    fit(log, Net(), classify, batches)


@program("NUM102", "backward", "SqrtBackward0", 2, sample=0)
def gradient_penalty_of_a_flat_critic(log):
    d = nn.Linear(6, 1)
    optimizer = torch.optim.Adam(d.parameters(), 1e-3)
    for step in range(4):
        x = torch.randn(4, 6, requires_grad=True)
        s = d(x) * (0.0 if step == 2 else 1.0)
        (g,) = torch.autograd.grad(s.sum(), x, create_graph=True)
        gp = ((g.square().sum(1).sqrt() - 1) ** 2).mean()  # born
        optimizer.zero_grad()
        loss = d(x.detach()).mean() + 10 * gp
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM102", "backward", "BadBackward", 1, module="bad", sample=5)
def backward_of_a_custom_function_divides(log):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.abs()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x / x.abs()  # born

    class B(nn.Module):
        def forward(self, x):
            return Bad.apply(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(6))
            self.bad = B()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.bad(self.w * x))

    batches = pairs()
    batches[1][0][5, 2] = 0
    fit(log, Net(), classify, batches)


@program("NUM104", "data", "div", 2, sample=0)
def standardised_by_a_generator(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def batches():
        for step, (x, y) in enumerate(pairs()):
            if step == 2:
                x[:, 4] = 1.0
            yield (x - x.mean(0)) / x.std(0), y  # born

    for x, y in batches():
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM104", "data", "log", 1, sample=3)
def log_features_in_a_helper(log):
    def prepare(x):
        return torch.log(x)  # born

    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs()):
        x = x.abs() + 0.1
        if step == 1:
            x[3, 3] = 0
        optimizer.zero_grad()
        loss = classify(model, prepare(x), y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM104", "data", "input", 2, sample=0, parameter="argument 0")
def batch_standardised_in_place(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs()):
        if step == 2:
            x[:, 1] = 0
        x.sub_(x.mean(0))
        x.div_(x.std(0))  # born
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM104", "data", "div", 37, sample=0)
def late_constant_feature(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs(45)):
        if step == LATE:
            x[:, 2] = 1
        x = (x - x.mean(0)) / x.std(0)  # born
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "div", 2)
def optimizers_that_step_in_backward(log):
    model = mlp()
    os = {p: torch.optim.SGD([p], 1e-2) for p in model.parameters()}

    def hook(p):
        os[p].step()
        os[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for step, (x, y) in enumerate(pairs()):
        w = torch.ones(8) if step != 2 else torch.zeros(8)
        loss = (F.cross_entropy(model(x), y, reduction="none") * w).sum() / w.sum()  # born
        loss.backward()
        log(loss)


@program("NUM101", "forward", "div", 2, module="", sample=5)
def evaluation_calls_between(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x / x.abs().sum(-1, keepdim=True))  # born

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, y) in enumerate(pairs()):
        with torch.no_grad():
            for v, _ in pairs(6):
                model(v)
        if step == 2:
            x[5] = 0
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        with torch.no_grad():
            model(torch.randn(3, 6))
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "sub", 2, sample=0)
def infinities_that_cancel(log):
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, (x, _y) in enumerate(pairs()):
        out = model(x)
        cap = torch.full((8, 1), math.inf if step == 2 else 5.0)
        hi = torch.maximum(out, cap)
        optimizer.zero_grad()
        loss = (hi - cap + out.square()).mean()  # born
        loss.backward()
        optimizer.step()
        log(loss)


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


@program("NUM104", "data", "input", 2, sample=3, parameter="argument 0.x")
def a_batch_in_a_dataclass(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, batch):
            return self.layer(batch.x)

    batches = [Batch(x, y) for x, y in pairs()]
    batches[2].x[3, 1] = math.nan
    fit(
        log,
        Net(),
        lambda model, batch: F.cross_entropy(model(batch), batch.y),
        [(b,) for b in batches],
    )


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op, issue.step) == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message
